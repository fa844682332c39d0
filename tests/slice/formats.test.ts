/**
 * Formats are promised: saved runs of earlier formats, with their checkpoints, are verified, replayed and resumed by today's code.
 *
 * tests/histories/runs: made by `npm run history` (tests/makeHistory.ts) at the commits that the table names, with the same settings.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runId } from '../../messages/ids'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'
import { audit } from '../support/audit'
import { troupe } from '../support/cli'
import { type LogImage, logImage, notExtended } from '../support/logImage'

jest.setTimeout(800_000)

const archives = join(__dirname, '../histories/runs')
const run = runId('history')
const directory = mkdtempSync(join(tmpdir(), 'troupe-slice-formats-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** By file: what the run was written with. */
const saved = [
  ['0.1.0-9034fd5.tar.gz', 'log format 1; checkpoints of whole tensors, manifests of format 1; absolute paths'],
  ['0.1.0-4a2d143.tar.gz', 'log format 1; checkpoints in shards; absolute paths, no digests of manifests'],
  ['0.1.0-log2.tar.gz', 'log format 2; checkpoints in shards with digests of all files; writers of facts'],
] as const

test('every saved run is tried', () => {
  expect(readdirSync(archives).sort()).toEqual(saved.map(([file]) => file).sort())
})

async function look<T>(bus: string, what: (log: Awaited<ReturnType<typeof openLmdbBus>>) => Promise<T>): Promise<T> {
  const log = await openLmdbBus({ directory: runDirectory(bus, run).log, mode: 'read' })
  return what(log).finally(() => log.close())
}

/** Facts and telemetry: commands are dropped after their retention. */
const facts = async (bus: string): Promise<LogImage> => {
  const image = await look(bus, logImage)
  return new Map([...image].filter(([place]) => /\.(runs|trajectories|learner|telemetry)\//.test(place)))
}

test.each(saved)('%s (%s) is verified, replayed and resumed', async file => {
  const bus = join(directory, file)
  execFileSync('mkdir', ['-p', bus])
  execFileSync('tar', ['-xzf', join(archives, file), '-C', bus])
  const replay = (...args: string[]) => troupe(['replay', ...args, '--run', run, '--bus', `lmdb:${bus}`]).done
  const sound = async () => {
    const { code, stdout } = await replay('verify', '--json')
    const { problems, files, counted } = JSON.parse(stdout)
    expect({ code, problems }).toEqual({ code: 0, problems: [] })
    return { files, counted }
  }
  const before = await facts(bus)
  const { files, counted } = await sound()
  expect(files.checkpoints).toBeGreaterThanOrEqual(2)
  expect(counted).toMatchObject({ steps: 3, trajectories: 2 * 4 * 3 + 2 * 2 })
  const replayed = await replay('run', '--all')
  expect({ code: replayed.code, stdout: replayed.stdout }).toEqual({
    code: 0,
    stdout: expect.stringMatching(/\d\d+ decisions are as recorded.*\nno decision differs/),
  })
  const args = [
    'train',
    'quickstart',
    '--bus',
    `lmdb:${bus}`,
    '--resume',
    run,
    '--accept-code',
    '--steps',
    '4',
    '--json',
  ]
  const { code, stdout, stderr } = await troupe(args).done
  expect({ code, stderr: stderr.slice(-2000) }).toMatchObject({ code: 0 })
  expect(JSON.parse(stdout.trim().split('\n').at(-1)!)).toMatchObject({ outcome: 'done', steps: 4 })
  expect(notExtended(before, await facts(bus))).toBeUndefined()
  expect(await look(bus, log => audit(openJournal(log, memoryBlobs(), run)))).toMatchObject({
    ...{ turnsTwice: [], lost: [], steps: [1, 2, 3, 4], started: [1, 2, 3, 4], deadLetters: 0, violations: [] },
  })
  expect((await sound()).counted.steps).toBe(4)
})
