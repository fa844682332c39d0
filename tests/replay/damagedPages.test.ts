/** Every page of a small log is damaged: what is read is the same, or the damage is named; no process dies of it. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encode } from '../../messages/codec'
import { runId } from '../../messages/ids'
import { type TopicName, topicOnBus } from '../../messages/topics'
import { openLog } from '../../replay/log/recordedRun'
import type { Salvaged } from '../../replay/salvage/salvageRun'
import type { Verification } from '../../replay/verify/verification'
import { verifyRun } from '../../replay/verify/verifyRun'
import { openRun } from '../../runtime/openRun'
import { troupe } from '../support/cli'
import { quickstartHistory, recordsOf, saveHistory } from '../support/histories'

jest.setTimeout(120_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-pages-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
const run = runId(history.run)

beforeAll(async () => {
  const { headers, value, key } = encode({ type: 'run.control', at: 0, id: 'i', order: 'pause', reason: '' }, { run })
  const control = { topic: topicOnBus(run, 'control'), key, headers, value }
  const commands = Array.from({ length: 40 }, (_, n) => ({
    ...control,
    headers: { ...headers, note: `${n}`.repeat(80) },
  }))
  await saveHistory(directory, { ...history, records: history.records.slice(0, 130) }, commands)
  const { bus } = await openRun(`lmdb:${directory}`, run, 'write')
  const options = {
    topics: [topicOnBus(run, 'trajectories')],
    group: 'owners',
    from: 'earliest',
    onError: fail,
  } as const
  const owner = await bus.subscribe(options, async () => {})
  await owner.commit({ topic: options.topics[0]!, partition: 0, offset: 5 })
  await owner.close()
  await bus.close()
})

function fail(error: Error): void {
  throw error
}

interface Tried {
  readonly page: number
  readonly how: string
  readonly use: 'verify' | 'show' | 'resume'
  readonly result?: string
}

test('a page of zeros or a changed bit gives the same answer or a named error, in verify, show and resume', () => {
  const child = join(__dirname, '../children/pageSweep.ts')
  const ran = spawnSync(process.execPath, ['-r', join(__dirname, '../../cli/register.js'), child, directory], {
    encoding: 'utf8',
    timeout: 110_000,
    maxBuffer: 2 ** 26,
  })
  const lines = ran.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Tried & { readonly done?: true })
  expect({ signal: ran.signal, last: lines.at(-1), stderr: ran.stderr }).toEqual({
    signal: null,
    last: { done: true },
    stderr: '',
  })
  const tried = lines.filter(line => line.result !== undefined)
  const pages = statSync(join(directory, 'runs', run, 'log/data.mdb')).size / 4096
  expect(tried).toHaveLength(pages * 2 * 3)
  expect(tried.filter(({ result }) => result!.startsWith('wrong'))).toEqual([])
  const same = (use: Tried['use']) =>
    tried.filter(t => t.use === use && t.result === 'same').map(({ page, how }) => `${page} ${how}`)
  // Resume reads every record of every topic, so verify has to find whatever it finds.
  expect(same('verify')).toEqual(same('resume'))
  expect(same('resume').length).toBeLessThan(pages)
  expect(same('show').length).toBeGreaterThan(same('verify').length)
})

test('verify reads the commands, and the blob of a dead letter', async () => {
  const at = join(directory, 'blobs')
  const letter = { topic: topicOnBus(run, 'dead-letters'), key: '', value: Buffer.alloc(0) }
  const address = `lmdb:${at}`
  await saveHistory(at, history)
  const writing = await openRun(address, run, 'write')
  const { sha256 } = await writing.blobs.put(Buffer.from('what could not be handled'))
  await writing.bus.append([{ ...letter, headers: { origin: 'turns:0:1', error: 'none', blob: sha256 } }])
  await writing.bus.append([{ ...letter, topic: topicOnBus(run, 'turns'), headers: { type: 'turn.generate' } }])
  await writing.bus.close()
  const verified = async (): Promise<Verification> => {
    const recorded = await openLog({ bus: address, run })
    try {
      return await verifyRun(recorded)
    } finally {
      await recorded.close()
    }
  }
  const places = async () => (await verified()).problems.map(({ place, kind }) => `${place} ${kind}`)
  expect(await places()).toEqual(['turns:0:0 torn-tail'])
  const folder = join(at, 'runs', run, 'blobs', sha256.slice(0, 2))
  expect(existsSync(folder)).toBe(true)
  writeFileSync(join(folder, readdirSync(folder)[0]!), 'something else')
  // The letter that names the blob, and the file itself.
  const file = expect.stringMatching(/blobs.*blob-damaged$/)
  expect(await places()).toEqual(['turns:0:0 torn-tail', 'dead-letters:0:0 blob', file])
})

/** Copies the whole history and damages the page of its data file that holds the n-th record of a topic. */
async function damagedAt(name: string, topic: TopicName, share: number): Promise<string> {
  const at = join(directory, name)
  await saveHistory(at, history)
  const { bus } = await openRun(`lmdb:${at}`, run, 'read')
  const { next } = await bus.offsets(topicOnBus(run, topic), 0)
  const [record] = await bus.read(topicOnBus(run, topic), 0, Math.floor((next - 1) * share), 1)
  await bus.close()
  const path = join(at, 'runs', run, 'log/data.mdb')
  const bytes = readFileSync(path)
  const where = bytes.indexOf(record!.value)
  expect(where).toBeGreaterThan(0)
  bytes[where]! ^= 4
  writeFileSync(path, bytes)
  return at
}

const replay = (...args: readonly string[]) => troupe(['replay', ...args]).done

test('salvage saves the facts before the damage as a run that verifies and takes appends, and says what is lost', async () => {
  const at = await damagedAt('half', 'trajectories', 0.6)
  const address = `lmdb:${at}`
  const { code, stdout, stderr } = await replay('salvage', run, '--bus', address, '--json')
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const said = JSON.parse(stdout) as Salvaged & { readonly ok: boolean }
  expect(said).toMatchObject({ ok: true, run, to: `lmdb:${join(at, 'salvaged')}` })
  expect(said.records).toBeGreaterThan(300)
  expect(said.lost.map(({ topic }) => topic)).toContain('trajectories')
  expect(said.trajectories.length).toBeGreaterThan(0)

  const { bus } = await openRun(said.to, run, 'write')
  const name = topicOnBus(run, 'trajectories')
  const { oldest, next } = await bus.offsets(name, 0)
  expect(oldest).toBe(0)
  const sound = recordsOf(history).filter(r => r.topic === name)
  const saved = await bus.read(name, 0, 0, next)
  expect(saved.map(r => Buffer.from(r.value))).toEqual(sound.slice(0, next).map(r => Buffer.from(r.value)))
  await bus.append([{ topic: topicOnBus(run, 'control'), key: run, headers: {}, value: Buffer.alloc(0) }])
  await bus.close()
  const again = await replay('salvage', run, '--bus', address)
  expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining('run.exists') })
})

test('salvage of a log whose first fact is damaged is refused by name, and so is a log that is gone', async () => {
  const at = await damagedAt('first', 'runs', 0)
  const refused = await replay('salvage', run, '--bus', `lmdb:${at}`)
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('replay.salvage_impossible') })
  const none = await replay('salvage', 'none', '--bus', `lmdb:${at}`)
  expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('run.not_found') })
})
