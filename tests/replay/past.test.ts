/** `--at`: a run as it stood at a record, out of the index of today and a few records of then. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { decode } from '../../messages/codec'
import { runId } from '../../messages/ids'
import { topicOnBus, topics } from '../../messages/topics'
import { openLog } from '../../replay/log/recordedRun'
import { trajectoriesOf } from '../../replay/trajectories/resolveId'
import { summaryOfRow, trajectorySummaries } from '../../replay/trajectories/summaries'
import { IndexRows } from '../../replay/trajectoryIndex/rows'
import type { Bus, BusRecord, NewRecord } from '../../runtime/bus/bus'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import type { Entry } from '../../runtime/journal/journal'
import { runDirectory } from '../../runtime/runDirectory'
import { quickstartHistory, recordsOf } from '../support/histories'

jest.setTimeout(120_000)

const directory = mkdtempSync(join(tmpdir(), 'troupe-past-'))
const history = quickstartHistory()
const run = runId(history.run)
const partitions = 2
const trajectories = topicOnBus(run, 'trajectories')
/** In each partition, by offset. */
const log: BusRecord[][] = []
const learner: BusRecord[] = []

/** A group goes to the partition of its last digit; each is claimed first. */
function placed(record: NewRecord): NewRecord[] {
  if (record.topic !== trajectories) return [record]
  if (record.headers.type?.endsWith('.claimed')) return [0, 1].map(partition => ({ ...record, partition }))
  return [{ ...record, partition: Number(/(\d)$/.exec(record.key ?? '')?.[1]) % partitions }]
}

/** In batches of different times; one record in 97 is a torn one. */
async function write(bus: Bus): Promise<void> {
  await bus.createTopics(
    Object.values(topics).map(t => ({
      topic: topicOnBus(run, t.name),
      partitions: t.single ? 1 : partitions,
      retentionMs: t.retentionMs,
    })),
  )
  const records = recordsOf({ ...history, partitions })
    .flatMap(placed)
    .flatMap((record, i): NewRecord[] =>
      i % 97 === 50 ? [{ ...record, value: record.value.subarray(0, 5) }, record] : [record],
    )
  for (let at = 0; at < records.length; at += 25) {
    await bus.append(records.slice(at, at + 25))
    await sleep(2)
  }
}

beforeAll(async () => {
  const at = runDirectory(directory, run).log
  mkdirSync(at, { recursive: true })
  const bus = await openLmdbBus({ directory: at, mode: 'write' })
  await write(bus)
  for (let p = 0; p < partitions; p++) log.push([...(await bus.read(trajectories, p, 0, 10_000))])
  learner.push(...(await bus.read(topicOnBus(run, 'learner'), 0, 0, 10_000)))
  await bus.close()
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** The same, by a fold over the records that stood there. */
function linesBy(isThere: (record: BusRecord) => boolean) {
  const rows = new IndexRows()
  for (const record of log.flatMap(records => records.filter(isThere))) {
    if (!rows.place(record)) continue
    const { headers, value, partition, offset, timestamp } = record
    let entry: Entry
    try {
      entry = { message: decode({ headers, value }), topic: 'trajectories', partition, offset, timestamp }
    } catch {
      continue
    }
    rows.take(entry)
  }
  return [...rows.rows.values()].map(summaryOfRow).filter(line => line !== undefined)
}

const places = () => [
  ...log.flatMap(records => records.filter((_, i) => i % 41 === 7)).map(record => ({ topic: 'trajectories', record })),
  ...learner.map(record => ({ topic: 'learner', record })),
]

test('at any record the trajectories are those of a log that ends there, and nothing that came later is told', async () => {
  expect(places().length).toBeGreaterThan(25)
  const counts = new Set<number>()
  for (const { topic, record } of places()) {
    const { partition, offset, timestamp } = record
    const recorded = await openLog({ bus: `lmdb:${directory}`, run, at: `${topic}:${partition}:${offset}` })
    const own = topic === 'trajectories' ? partition : undefined
    const isThere = (one: BusRecord) => (one.partition === own ? one.offset <= offset : one.timestamp <= timestamp)
    const lines = await trajectorySummaries(recorded)
    expect(lines).toEqual(linesBy(isThere))
    expect(await trajectoriesOf(recorded)).toEqual(expect.arrayContaining(lines.map(line => line.trajectory)))
    counts.add(lines.length)
    for (const fault of recorded.faults) expect(isThere(log[fault.partition]![fault.offset]!)).toBe(true)
    await recorded.close()
  }
  expect(counts.size).toBeGreaterThan(5)
})

test('a look at the past reads the records of what was open then, not the log', async () => {
  const [, records] = log
  const { offset } = records!.at(-60)!
  const recorded = await openLog({ bus: `lmdb:${directory}`, run, at: `trajectories:1:${offset}` })
  await trajectorySummaries(recorded.whole)
  let read = 0
  const { bus } = recorded
  const { read: reading } = bus
  bus.read = async (topic, partition, from, max) => {
    const found = await reading.call(bus, topic, partition, from, max)
    read += found.length
    return found
  }
  expect((await trajectorySummaries(recorded)).length).toBeGreaterThan(40)
  expect(read).toBeLessThan(0.6 * (log[0]!.length + log[1]!.length))
  await recorded.close()
})
