/** Every path of a run's directory is damaged: what is read is the same, or the damage is named; no process dies of it. */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Fact } from '../../messages/facts'
import { epoch, policyVersion, runId } from '../../messages/ids'
import { topicOnBus } from '../../messages/topics'
import { openRun } from '../../runtime/openRun'
import { writeCheckpoint } from '../support/checkpointFiles'
import { quickstartHistory, saveHistory } from '../support/histories'

jest.setTimeout(120_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-layout-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
const run = runId(history.run)
const root = join(directory, 'runs', run)
let blob = ''

/** Writes the beginning of a run with two checkpoints, published weights, a model, and a dead letter with a blob. */
beforeAll(async () => {
  const records = [
    ...history.records.filter(({ topic }) => topic === 'runs').slice(0, 3),
    ...history.records.filter(({ topic }) => topic === 'trajectories').slice(0, 60),
  ]
  await saveHistory(directory, { ...history, records })
  const facts = [1, 2].flatMap((step): Fact[] => {
    const [name, version, baseVersion] = [`step-00000${step}`, policyVersion(step), policyVersion(step - 1)]
    const digests = writeCheckpoint(join(root, 'checkpoints', name))
    return [
      { type: 'step.started', at: 0, step, epoch: epoch(0), baseVersion, baseCheckpoint: '', trajectories: [] },
      { type: 'step.completed', at: 0, step, epoch: epoch(0), version, metrics: {} },
      { type: 'checkpoint.saved', at: 0, step, version, name, bytes: 1, ...digests },
    ]
  })
  const digests = writeCheckpoint(join(root, 'weights/v000002'), { trainer: false })
  const version = policyVersion(2)
  facts.push({ type: 'weights.published', at: 0, version, step: 2, url: 'weights/v000002', bytes: 1, ...digests })
  cpSync(join(root, 'checkpoints/step-000002'), join(root, 'model'), {
    recursive: true,
    filter: path => !/manifest|training|reference/.test(path),
  })
  for (const file of ['model.json', 'log/writer.heartbeat']) writeFileSync(join(root, file), '{}')
  const { bus, blobs, journal } = await openRun(`lmdb:${directory}`, run, 'write')
  await journal.append(facts)
  blob = (await blobs.put(Buffer.from('what could not be handled'))).sha256
  const headers = { origin: 'turns:0:1', error: 'none', blob }
  await bus.append([{ topic: topicOnBus(run, 'dead-letters'), key: '', value: Buffer.alloc(0), headers }])
  await bus.close()
})

interface Tried {
  readonly path: string
  readonly damage: string
  readonly use: string
  readonly result?: string
  readonly done?: true
}

test('a path that is missing, empty, unreadable, of another kind or a dead link is named, or changes nothing', () => {
  const child = join(__dirname, '../children/layoutSweep.ts')
  const register = join(__dirname, '../../cli/register.js')
  const ran = spawnSync(process.execPath, ['-r', register, child, directory, blob], {
    encoding: 'utf8',
    timeout: 110_000,
    maxBuffer: 2 ** 26,
  })
  const lines = ran.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Tried)
  expect({ signal: ran.signal, last: lines.at(-1), stderr: ran.stderr }).toEqual({
    signal: null,
    last: { done: true },
    stderr: '',
  })
  const tried = lines.filter(({ result }) => result !== undefined)
  expect(tried.length).toBeGreaterThan(300)
  expect(tried.filter(({ result }) => result!.startsWith('wrong'))).toEqual([])
  // All that verify takes for sound: what it can do without, and what may have been removed or left out
  // of a copy. Of the latter it counts fewer files.
  const sound = tried.filter(({ use, result }) => use === 'verify' && /^(same|counted)$/.test(result!))
  const found = sound.map(({ path, damage, result }) => `${path} ${damage}: ${result}`)
  expect(found).toEqual([
    ...['missing', 'empty', ...whereNotRoot].map(damage => `log/lock.mdb ${damage}: same`),
    ...all('log/writer.heartbeat'),
    ...['checkpoints missing: counted', 'checkpoints/step-000001 missing: counted', 'weights missing: counted'],
    'model missing: same', // a resume makes it again
    ...['model.json', 'index', 'home/replay', 'home/logs'].flatMap(all),
  ])
})

const whereNotRoot = process.getuid?.() === 0 ? [] : ['unreadable']
const all = (path: string): readonly string[] =>
  ['missing', 'otherKind', 'empty', 'dangling', 'fifo', ...whereNotRoot].map(damage => `${path} ${damage}: same`)
