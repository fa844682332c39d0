/** The index beside a log: it says what the log says, goes on from where it was, and is dropped where it does not fit. */
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { writeManyTrajectories } from '../../bench/support/manyTrajectories'
import { encode } from '../../messages/codec'
import type { CallFinished, SessionOpened } from '../../messages/facts'
import { engineId, type GroupId, policyVersion, runId } from '../../messages/ids'
import { type Message, topicOnBus } from '../../messages/topics'
import { summaryOfRow } from '../../replay/trajectories/summaries'
import { readIndex, writeIndex } from '../../replay/trajectoryIndex/indexFile'
import { packPlaces, unpackPlaces } from '../../replay/trajectoryIndex/packedPlaces'
import { IndexRows } from '../../replay/trajectoryIndex/rows'
import { memoryBlobs } from '../../runtime/bus/blobs'
import type { NewRecord } from '../../runtime/bus/bus'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { openJournal } from '../../runtime/journal/openJournal'
import { runDirectory } from '../../runtime/runDirectory'
import { requested } from '../support/facts'
import { quickstartHistory } from '../support/histories'
import { troupeHere } from '../support/troupeHere'

jest.setTimeout(120_000)

const scratch = mkdtempSync(join(tmpdir(), 'troupe-index-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))
const home = join(scratch, 'home')
const run = runId('many')
const logOf = (directory: string) => runDirectory(directory, run).log

async function replay(directory: string, ...args: readonly string[]) {
  const said = await troupeHere(['replay', ...args, '--bus', `lmdb:${directory}`], { TROUPE_HOME: home })
  return { ...said, lines: said.stdout.trim().split('\n') }
}
const kept = () => {
  const directory = join(home, 'replay')
  return readdirSync(directory).map(name => join(directory, name))
}

async function withLog(directory: string, act: (bus: Awaited<ReturnType<typeof openLmdbBus>>) => Promise<unknown>) {
  const log = logOf(directory)
  mkdirSync(log, { recursive: true })
  const bus = await openLmdbBus({ directory: log, mode: 'write' })
  await act(bus)
  await bus.close()
}

const sound = join(scratch, 'sound')
beforeAll(() =>
  withLog(sound, async bus => {
    const journal = openJournal(bus, memoryBlobs(), run)
    await journal.create(2)
    await writeManyTrajectories(journal, { steps: 4, groups: 22, groupSize: 16 })
  }),
)
beforeEach(() => rmSync(home, { recursive: true, force: true }))

const [request] = quickstartHistory().records.flatMap(r => (r.message.type === 'rollout.requested' ? [r.message] : []))
/** What a log of this fact adds: a trajectory of a group of its own. */
function newcomer(group: string): NewRecord {
  const id = { group: group as never, trajectory: `${group}/0` as never, member: 0 }
  const { key, headers, value } = encode({ ...request!, ...id }, { run })
  return { topic: topicOnBus(run, 'trajectories'), key, headers, value }
}

test('places go through bytes and back, whatever their partitions and offsets', () => {
  const place = fc.tuple(fc.integer({ min: 0, max: 65_535 }), fc.integer({ min: 0, max: 2 ** 48 }))
  fc.assert(
    fc.property(fc.array(place), places => {
      const flat = places.flat()
      expect(unpackPlaces(packPlaces(flat))).toEqual(flat)
    }),
  )
})

type Stored = { readonly message: Message; readonly timestamp: number }

/** Folds the records with the offsets from `from` up to `to` into the rows. */
function fold(rows: IndexRows, history: readonly Stored[], from: number, to: number): IndexRows {
  for (let offset = from; offset < to; offset++) {
    const { message, timestamp } = history[offset]!
    const { key, headers, value } = encode(message, { run, maxBytes: Number.POSITIVE_INFINITY })
    const record = { topic: 't', partition: 0, offset, timestamp, key, headers, value }
    if (rows.place(record)) rows.take({ message, topic: 'trajectories', partition: 0, offset, timestamp })
  }
  return rows
}

/** Writes the rows to bytes and reads these. */
function through(rows: IndexRows) {
  const partition = { oldest: 0, first: null, last: null, ...rows.partition(0) }
  return readIndex(writeIndex(rows, { source: '', schema: '', partitions: [partition], faults: [] }))!
}

test('rows that are kept and go on equal rows made at once, wherever the log was cut', () => {
  const history = quickstartHistory().records.filter(r => r.topic === 'trajectories')
  const said = (rows: IndexRows) => {
    const view = through(rows)
    return Array.from({ length: view.size }, (_, i) => [summaryOfRow(view.row(i)), view.places(i), view.groupPlaces(i)])
  }
  const whole = said(fold(new IndexRows(), history, 0, history.length))
  expect(whole).toHaveLength(88)
  for (let cut = 0; cut <= history.length; cut += 61) {
    const before = fold(new IndexRows(), history, 0, cut)
    expect(said(fold(through(before).rows(), history, cut, history.length))).toEqual(whole)
  }
})

test("calls of an agent that come after the index was stored add to its earlier calls' turns and tokens; another opening starts anew", () => {
  const answered = (call: number): CallFinished => ({
    ...{ type: 'call.finished', at: 0, trajectory: requested('g', 0).trajectory, call, attempt: 0, text: '' },
    ...{ engine: engineId('e'), tokens: Int32Array.of(1, 2), logprobs: Float32Array.of(-1, -1), finish: 'stop' },
    ...{ error: '', cachedTokens: 0, preemptions: 0 },
    segments: [{ policyVersion: policyVersion(0), start: 0, end: 2 }],
    timing: { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 },
  })
  const opened = (opening: number): SessionOpened => ({
    ...{
      type: 'session.opened',
      at: 0,
      trajectory: requested('g', 0).trajectory,
      opening,
      keyDigest: '',
      expiresAt: 9,
    },
  })
  const rowOf = (facts: readonly Message[]) => {
    const history = [requested('g', 0), ...facts].map(message => ({ message, timestamp: 0 }))
    const found = history.map((_, cut) => {
      const rows = fold(through(fold(new IndexRows(), history, 0, cut)).rows(), history, cut, history.length)
      return [rows.rows.size, rows.groups.get('g' as GroupId)?.members.length, through(rows).row(0)] as const
    })
    expect(new Set(found.map(row => JSON.stringify(row))).size).toBe(1)
    return found[0]!
  }
  const first = [opened(0), answered(0), answered(1), answered(2)]
  expect(rowOf(first)).toMatchObject([1, 1, { state: 'running', turns: 3, sampledTokens: 6 }])
  // After a resume the session's agent starts anew, and its earlier calls do not count.
  expect(rowOf([...first, opened(1), answered(3)])).toMatchObject([
    1,
    1,
    { state: 'running', turns: 1, sampledTokens: 2 },
  ])
  expect(rowOf([...first, opened(0)])).toMatchObject([1, 1, { turns: 3, sampledTokens: 6 }])
})

test('a file of which a byte was lost or changed is no index', () => {
  const bytes = writeIndex(new IndexRows(), { source: 's', schema: 'x', partitions: [], faults: [] })
  expect(readIndex(bytes)).toBeDefined()
  for (let at = 0; at < bytes.length; at++) {
    const changed = Buffer.from(bytes)
    changed[at]! ^= 1
    expect(readIndex(changed)).toBeUndefined()
    expect(readIndex(bytes.subarray(0, at))).toBeUndefined()
  }
})

test('the second look reads the index, says the same, and neither writes into the run', async () => {
  const digest = () =>
    createHash('sha256')
      .update(readFileSync(join(logOf(sound), 'data.mdb')))
      .digest('hex')
  const files = () => readdirSync(sound, { recursive: true }).sort()
  const before = { digest: digest(), files: files() }
  const first = await replay(sound, 'ls', '--json', '--limit', '10000')
  expect(first.stderr).toMatch(/^index made: 1408 trajectories, \d+ records/)
  expect(first.lines).toHaveLength(1408)
  const [file] = kept()
  const made = statSync(file!).mtimeMs
  const second = await replay(sound, 'ls', '--json', '--limit', '10000')
  expect(second.stderr).toBe('')
  expect(second.stdout).toBe(first.stdout)
  expect(statSync(file!).mtimeMs).toBe(made)
  expect({ digest: digest(), files: files() }).toEqual(before)
})

test('show by the index prints what show by the whole log does', async () => {
  const id = 's0003.0007/5'
  await replay(sound, 'ls', '--limit', '1')
  const byIndex = await replay(sound, 'show', id, '--json')
  expect(byIndex.stderr).toBe('')
  const last = JSON.parse((await replay(sound, 'show', 's0004.0021/15', '--json')).lines.at(-1)!) as { place: string }
  const byLog = await replay(sound, 'show', id, '--json', '--at', last.place)
  expect(byIndex.lines.length).toBeGreaterThan(8)
  expect(byLog.stdout).toBe(byIndex.stdout)
  const part = await replay(sound, 'show', '0003.0007/5', '--json')
  expect(part.stdout).toBe(byIndex.stdout)
  const several = await replay(sound, 'show', '0007/5')
  expect(several.code).toBe(2)
  expect(several.stderr).toContain('matches 4 ids: s0001.0007/5, s0002.0007/5, s0003.0007/5, s0004.0007/5')
})

test('what came since is in the list, and the file stays until that is much', async () => {
  const grown = join(scratch, 'grown')
  cpSync(sound, grown, { recursive: true })
  await replay(grown, 'ls', '--limit', '1')
  const [file] = kept()
  const made = statSync(file!).mtimeMs
  await withLog(grown, bus => bus.append([newcomer('late')]))
  const listed = await replay(grown, 'ls', '--json', '--limit', '10000')
  expect(listed.stderr).toBe('')
  expect(listed.lines).toHaveLength(1409)
  expect(JSON.parse(listed.lines.at(-1)!)).toMatchObject({ trajectory: 'late/0', status: 'running' })
  expect((await replay(grown, 'show', 'late/0')).stdout).toContain('late/0')
  expect(statSync(file!).mtimeMs).toBe(made)
  await withLog(grown, bus => bus.append(Array.from({ length: 1000 }, (_, i) => newcomer(`later${i}`))))
  expect((await replay(grown, 'ls', '--json', '--limit', '10000')).lines).toHaveLength(2409)
  expect(statSync(file!).mtimeMs).toBeGreaterThan(made)
})

test('an index that is torn, or of another log, is made anew, and that is said', async () => {
  const other = join(scratch, 'other')
  cpSync(sound, other, { recursive: true })
  const first = await replay(other, 'ls', '--json', '--limit', '10000')
  const [file] = kept()
  const bytes = readFileSync(file!)
  writeFileSync(file!, bytes.subarray(0, bytes.length - 100))
  const torn = await replay(other, 'ls', '--json', '--limit', '10000')
  expect(torn.stderr).toContain('index rebuilt (the index file was torn, or of another version)')
  expect(torn.stdout).toBe(first.stdout)
  expect((await replay(other, 'ls', '--limit', '1', '--reindex')).stderr).toContain('index rebuilt (--reindex)')

  rmSync(logOf(other), { recursive: true })
  await withLog(other, async bus => {
    const journal = openJournal(bus, memoryBlobs(), run)
    await journal.create(2)
    await writeManyTrajectories(journal, { steps: 5, groups: 22, groupSize: 16 })
  })
  const replaced = await replay(other, 'ls', '--json', '--limit', '10000')
  expect(replaced.stderr).toContain('the records of partition 0 have changed')
  expect(replaced.lines).toHaveLength(1760)
})

test('what cannot be read is said with the index as without it, and a torn tail that was written on is seen', async () => {
  const bad = join(scratch, 'bad')
  cpSync(sound, bad, { recursive: true })
  const { key, headers, value } = newcomer('odd') as NewRecord & { headers: Record<string, string> }
  const topic = topicOnBus(run, 'trajectories')
  const torn = { topic, partition: 1, key, headers, value: value.subarray(0, 9) }
  await withLog(bad, bus =>
    bus.append([{ topic, partition: 0, key, headers: { ...headers, version: '99' }, value }, torn]),
  )
  const first = await replay(bad, 'ls', '--json', '--limit', '10000')
  expect(first.lines).toHaveLength(1408)
  expect(first.stderr).toContain('index made')
  expect(first.stderr).toMatch(/trajectories:0:\d+ newer-schema/)
  expect(first.stderr).toMatch(/trajectories:1:\d+ torn-tail/)
  const second = await replay(bad, 'ls', '--json', '--limit', '10000')
  expect(second.stdout).toBe(first.stdout)
  expect(second.stderr).toBe(first.stderr.replace(/^index made.*\n/, ''))
  await withLog(bad, bus => bus.append([{ ...newcomer('after'), partition: 1 }]))
  const third = await replay(bad, 'ls', '--json', '--limit', '10000')
  expect(third.lines).toHaveLength(1409)
  expect(third.stderr).toMatch(/index rebuilt \(the fault at trajectories:1:\d+ has changed\)/)
  expect(third.stderr).toMatch(/trajectories:1:\d+ unreadable/)
})

test('bytes that the disk lost are named with their offsets, and everything around them is shown', async () => {
  const lost = join(scratch, 'lost')
  cpSync(sound, lost, { recursive: true })
  const file = join(logOf(lost), 'data.mdb')
  const bytes = readFileSync(file)
  for (let at = bytes.indexOf('s0002.0010/7'); at >= 0; at = bytes.indexOf('s0002.0010/7', at + 1)) bytes[at + 3]! ^= 1
  writeFileSync(file, bytes)
  const listed = await replay(lost, 'ls', '--json', '--limit', '10000')
  expect(listed.code).toBe(0)
  expect(listed.stderr).toMatch(/trajectories:\d:\d+ unreadable: .*checksum.*\(through offset \d+\)/)
  expect(listed.lines.length).toBeGreaterThan(1200)
  expect(listed.stdout).toContain('s0004.0021/15')
  const again = await replay(lost, 'ls', '--json', '--limit', '10000')
  expect(again.stdout).toBe(listed.stdout)
  expect(again.stderr).not.toContain('index made')
  expect(again.stderr).toContain('unreadable')
})
