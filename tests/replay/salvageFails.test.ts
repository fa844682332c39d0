/** A salvage that fails leaves nothing of the new run, and everything that was there before. */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { salvageRun } from '../../replay/salvage/salvageRun'
import { quickstartHistory, saveHistory } from '../support/histories'

const directory = mkdtempSync(join(tmpdir(), 'troupe-salvage-fails-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
const { run } = history
const root = join(directory, 'runs', run)
const [bus, to] = [`lmdb:${directory}`, join(directory, 'deep/er/salvaged')]
const salvage = () => salvageRun({ bus, run, to: `lmdb:${to}` })

beforeAll(() => saveHistory(directory, { ...history, records: history.records.filter(r => r.topic === 'runs') }))

test('a file that cannot be copied is named; the directories that salvage made are gone, and the next try works', async () => {
  const fifo = join(root, 'checkpoints/step-000001/x')
  mkdirSync(join(fifo, '..'), { recursive: true })
  execFileSync('mkfifo', [fifo])
  for (const before of [[], ['deep/notes.txt'], ['deep/er/salvaged/runs/other/x']]) {
    for (const file of before) {
      mkdirSync(join(directory, file, '..'), { recursive: true })
      writeFileSync(join(directory, file), 'mine')
    }
    await expect(salvage()).rejects.toMatchObject({
      code: 'replay.copy_failed',
      message: expect.stringContaining(join(root, 'checkpoints')),
    })
    expect(existsSync(join(to, 'runs', run))).toBe(false)
    expect(existsSync(join(directory, 'deep'))).toBe(before.length > 0)
    for (const file of before) expect(readFileSync(join(directory, file), 'utf8')).toBe('mine')
  }
  expect(readdirSync(to)).toEqual(['runs'])
  rmSync(fifo)
  expect(await salvage()).toMatchObject({ run, lost: [] })
  await expect(salvage()).rejects.toMatchObject({ code: 'run.exists' })
  expect(existsSync(join(to, 'runs', run, 'log/data.mdb'))).toBe(true)
})

test('a file or an empty directory that has the name of the new run stays', async () => {
  for (const make of [(path: string) => writeFileSync(path, 'x'), (path: string) => mkdirSync(path)]) {
    const taken = join(mkdtempSync(join(directory, 'taken-')), 'runs', run)
    mkdirSync(join(taken, '..'))
    make(taken)
    const refused = salvageRun({ bus, run, to: `lmdb:${join(taken, '../..')}` })
    await expect(refused).rejects.toMatchObject({ code: 'run.exists' })
    expect(existsSync(taken)).toBe(true)
  }
})

test('a log that is missing or no file is named', async () => {
  const data = join(root, 'log/data.mdb')
  rmSync(data)
  const none = { code: 'bus.not_a_log', message: expect.stringContaining('data.mdb is missing') }
  await expect(salvageRun({ bus, run })).rejects.toMatchObject(none)
  mkdirSync(data)
  await expect(salvageRun({ bus, run })).rejects.toMatchObject({ code: 'bus.not_a_log' })
})
