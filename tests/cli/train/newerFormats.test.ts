/** A run that a newer version wrote to is refused by `train --resume`, and not a byte of its directory changes. */
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from 'lmdb'
import { train } from '../../../cli/train'
import { refuseNewerRun } from '../../../cli/train/startedRun'
import { runId } from '../../../messages/ids'
import { topicOnBus } from '../../../messages/topics'
import type { NewRecord } from '../../../runtime/bus/bus'
import { openLmdbBus } from '../../../runtime/bus/lmdb/lmdbBus'
import { runDirectory } from '../../../runtime/runDirectory'
import { quickstartHistory, recordsOf, saveHistory } from '../../support/histories'

jest.setTimeout(120_000)

const history = quickstartHistory()
const run = runId(history.run)
const root = mkdtempSync(join(tmpdir(), 'troupe-newer-'))
const pristine = join(root, 'pristine')
beforeAll(() => saveHistory(pristine, history))
afterAll(() => rmSync(root, { recursive: true, force: true }))

let copies = 0
function copied(): { readonly directory: string; readonly files: string; readonly log: string } {
  const directory = join(root, `copy-${++copies}`)
  cpSync(pristine, directory, { recursive: true })
  const { root: files, log } = runDirectory(directory, run)
  return { directory, files, log }
}

/** By path. lmdb's own lock file is left out: whoever reads a log registers there. */
function digestsOf(directory: string): Readonly<Record<string, string>> {
  const names = readdirSync(directory, { recursive: true, withFileTypes: true })
  const files = names.filter(entry => entry.isFile() && entry.name !== 'lock.mdb')
  return Object.fromEntries(
    files.map(({ parentPath, name }) => {
      const path = join(parentPath, name)
      return [path, createHash('sha256').update(readFileSync(path)).digest('hex')]
    }),
  )
}

async function refusalOf(directory: string): Promise<{ readonly code: string; readonly message: string }> {
  const before = digestsOf(directory)
  const refused = await train('quickstart', { bus: `lmdb:${directory}`, resume: run, set: [] }).catch(error => error)
  expect(digestsOf(directory)).toEqual(before)
  return refused
}

async function append(log: string, ...records: readonly NewRecord[]): Promise<void> {
  const bus = await openLmdbBus({ directory: log, mode: 'write' })
  await bus.append(records)
  await bus.close()
}

test('a run that this version wrote is not refused', async () => {
  await refuseNewerRun(`lmdb:${copied().directory}`, run, undefined)
})

test('a log of a newer format is refused with both formats', async () => {
  const { directory, log } = copied()
  const environment = open({ path: log, noSubdir: false, overlappingSync: false })
  const meta = environment.openDB({ name: 'troupe.meta', encoding: 'json', useVersions: true })
  await meta.put('format', { name: 'troupe-log', version: 3 })
  await environment.close()
  const { code, message } = await refusalOf(directory)
  expect(code).toBe('bus.newer_format')
  expect(message).toBe(
    `the log in ${log} has the format 3, but this version reads formats up to 2; nothing was changed`,
  )
  await expect(openLmdbBus({ directory: log, mode: 'write' })).rejects.toMatchObject({ code: 'bus.newer_format' })
})

const last = (topic: 'runs' | 'learner' | 'trajectories') =>
  recordsOf(history).findLast(record => record.topic === topicOnBus(run, topic))!

test.each(['runs', 'learner', 'trajectories'] as const)(
  'a record of %s with a newer schema, or of an unknown type, is refused with its place',
  async topic => {
    const record = last(topic)
    const { type } = record.headers as { readonly type: string }
    for (const [headers, why] of [
      [{ version: '7' }, `${type} has the schema version 7; this version of Troupe reads schema versions up to 1`],
      [{ type: 'turn.dreamt' }, "its type 'turn.dreamt' is unknown"],
    ] as const) {
      const { directory, log } = copied()
      const bus = await openLmdbBus({ directory: log, mode: 'read' })
      const { next } = await bus.offsets(record.topic, 0)
      await bus.close()
      await append(log, { ...record, headers: { ...record.headers, ...headers } })
      const { code, message } = await refusalOf(directory)
      expect(code).toBe('run.newer_format')
      expect(message).toContain(`the record ${topic}:0:${next} is newer: ${why}`)
    }
  },
)

test.each(['checkpoints/step-000003', 'weights/v000003'])(
  'a newer layout of %s is refused with its file',
  async name => {
    const { directory, files } = copied()
    mkdirSync(join(files, name), { recursive: true })
    const manifest = join(files, name, 'manifest.json')
    writeFileSync(manifest, JSON.stringify({ format: 3, layers: {} }))
    const { code, message } = await refusalOf(directory)
    expect(code).toBe('run.newer_format')
    expect(message).toContain(`${manifest} has the format 3; this version of Troupe reads formats up to 2`)
  },
)
