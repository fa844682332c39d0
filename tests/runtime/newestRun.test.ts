/** Which runs a directory has, and which a command means that gets no --run: the one whose log was written last. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chooseRun } from '../../runtime/openRun'
import { runsByLastWrite, runsOf } from '../../runtime/runDirectory'

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

test('files, dead links and names that no run can have are no runs; a run whose log is a file is one', () => {
  const at = join(directory, 'mixed')
  const runs = join(at, 'runs')
  for (const name of ['sound/log', 'odd/', 'not a run']) mkdirSync(join(runs, name), { recursive: true })
  for (const name of ['notes.txt', '.DS_Store', 'odd/log', 'sound/log/data.mdb']) writeFileSync(join(runs, name), 'x')
  symlinkSync('sound', join(runs, 'linked'))
  for (const to of ['nowhere', 'notes.txt', 'loop']) symlinkSync(to, join(runs, to === 'loop' ? 'loop' : `to-${to}`))
  expect(runsOf(at)).toEqual(['linked', 'odd', 'sound'])
  expect(runsByLastWrite(at)[0]).toBe('odd')
  expect(chooseRun(`lmdb:${at}`, undefined)).toMatch(/sound|linked/)
  const file = join(directory, 'ofFile')
  mkdirSync(file)
  writeFileSync(join(file, 'runs'), 'x')
  expect(() => chooseRun(`lmdb:${file}`, undefined)).toThrow(
    expect.objectContaining({ code: 'run.bad_directory', message: expect.stringContaining(join(file, 'runs')) }),
  )
})
