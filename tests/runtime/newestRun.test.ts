/** Which run a command means that gets no --run: the one whose log was written last, whatever the runs' names. */
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chooseRun } from '../../runtime/openRun'
import { runsByLastWrite } from '../../runtime/runDirectory'

const directory = mkdtempSync(join(tmpdir(), 'troupe-newest-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

function written(name: string, second: number): void {
  const log = join(directory, 'runs', name, 'log')
  mkdirSync(log, { recursive: true })
  writeFileSync(join(log, 'data.mdb'), '')
  utimesSync(join(log, 'data.mdb'), second, second)
}

test('runs are in the order of their last writes; a run without a log comes first', () => {
  written('zebra', 100)
  written('ant', 300)
  written('bee', 200)
  mkdirSync(join(directory, 'runs', 'yak'))
  expect(runsByLastWrite(directory)).toEqual(['yak', 'zebra', 'bee', 'ant'])
  expect(chooseRun(`lmdb:${directory}`, undefined)).toBe('ant')
  expect(chooseRun(`lmdb:${directory}`, 'zebra')).toBe('zebra')
})

test('without a run the error says where none is', () => {
  const none = join(directory, 'none')
  expect(() => chooseRun(`lmdb:${none}`, undefined)).toThrow(expect.objectContaining({ code: 'run.not_found' }))
})
