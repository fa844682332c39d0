/**
 * A recorded run, for reading only: every message with where it stood, and what could not be read.
 *
 * in   --bus, --run, --at        out  entries topic by topic, partition by partition, in order; faults beside them
 * Invariant: nothing is written, no group is joined, no dead letter is sent: a run that is looked at stays as it is. A
 * record that cannot be read is a fault with its place, and the rest is still given.
 */
import type { Command } from 'commander'
import { decode } from '../../messages/codec'
import type { Fact, RunStarted } from '../../messages/facts'
import { type RunId, runId } from '../../messages/ids'
import { MessageError } from '../../messages/messageError'
import { type TopicName, topicOnBus, topics } from '../../messages/topics'
import type { BlobStore } from '../../runtime/bus/blobs'
import type { Bus, BusRecord } from '../../runtime/bus/bus'
import { asError, TroupeError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal'
import type { RunDirectory } from '../../runtime/runDirectory'
import { chooseRun, openForReading, runsOn, withBus } from '../runContext'

/** gap: offsets that are not there. torn-tail: the last record of a partition cannot be unpacked. */
export type FaultKind = 'gap' | 'torn-tail' | 'newer-schema' | 'unknown-type' | 'unreadable' | 'blob'

export interface Fault {
  readonly kind: FaultKind
  readonly topic: TopicName
  readonly partition: number
  readonly offset: number
  readonly message: string
}

export interface Place {
  readonly topic: TopicName
  readonly partition: number
  readonly offset: number
}

export interface ReadOptions {
  readonly bus: string
  readonly run?: string
  readonly at?: string
}

type Take = (entry: Entry, record: BusRecord) => void

export interface RecordedRun {
  readonly run: RunId
  readonly files: RunDirectory
  readonly bus: Bus
  readonly blobs: BlobStore
  /** In the order in which they were met. */
  readonly faults: readonly Fault[]
  /**
   * Calls `take` with every entry of a topic, a partition after the other, up to `--at`. `want` spares the unpacking of
   * what it refuses by its headers. Returns where each partition ended.
   */
  scan(topic: TopicName, take: Take, want?: (headers: BusRecord['headers']) => boolean): Promise<readonly Place[]>
  /** From `place` on: what has come since; the next place. */
  scanFrom(place: Place, take: Take): Promise<Place>
  /** The run's first fact. @throws TroupeError cli.run_empty */
  started(): Promise<RunStarted>
  close(): Promise<void>
}

const readAtOnce = 4096
/** Records that the bus itself refuses to give, one after the other, before a partition is given up. */
const maxBroken = 64

export function withRun(command: Command): Command {
  return withBus(command)
    .option('--run <id>', 'the run (default: the newest)')
    .option('--at <topic:partition:offset>', 'the run as it stood when this record was written')
}

export const placeText = ({ topic, partition, offset }: Place): string => `${topic}:${partition}:${offset}`

export async function openRecorded(options: ReadOptions): Promise<RecordedRun> {
  const at = options.at === undefined ? undefined : placeOf(options.at)
  const chosen = options.bus.startsWith('kafka:') ? options.run : chooseRun(options.bus, options.run)
  const { run, files, bus, blobs } = await openForReading(options.bus, chosen, newestOn)
  try {
    const recorded = await reader(run, files, bus, blobs, at)
    return recorded
  } catch (thrown) {
    await bus.close()
    throw thrown
  }
}

async function reader(run: RunId, files: RunDirectory, bus: Bus, blobs: BlobStore, at: Place | undefined) {
  const faults: Fault[] = []
  const seenFaults = new Set<string>()
  const names = new Map((await bus.listTopics()).map(config => [config.topic, config.partitions]))
  const until = at === undefined ? Number.POSITIVE_INFINITY : await timeOf(bus, run, at)

  function fault(kind: FaultKind, place: Place, message: string): void {
    const key = `${kind} ${placeText(place)}`
    if (seenFaults.has(key)) return
    seenFaults.add(key)
    faults.push({ kind, ...place, message })
  }

  /** Where the look at this run ends in a partition. */
  function isAfter(record: BusRecord, topic: TopicName): boolean {
    if (at === undefined) return false
    if (topic === at.topic && record.partition === at.partition) return record.offset > at.offset
    return record.timestamp > until
  }

  async function take(record: BusRecord, topic: TopicName, next: number, give: Take): Promise<void> {
    const { partition, offset, timestamp, headers } = record
    try {
      const value = headers.blob === undefined ? record.value : await blobs.get(headers.blob)
      give({ message: decode({ headers, value }), topic, partition, offset, timestamp }, record)
    } catch (thrown) {
      const error = asError(thrown)
      const kind = faultKind(error)
      if (kind === undefined) throw thrown
      const torn = kind === 'unreadable' && offset === next - 1
      fault(torn ? 'torn-tail' : kind, { topic, partition, offset }, error.message)
    }
  }

  async function scanPartition(
    topic: TopicName,
    partition: number,
    from: number | undefined,
    give: Take,
    want?: (headers: BusRecord['headers']) => boolean,
  ): Promise<Place> {
    const name = topicOnBus(run, topic)
    const { oldest, next } = await bus.offsets(name, partition)
    let offset = Math.max(from ?? oldest, oldest)
    let broken = 0
    while (offset < next) {
      let records: readonly BusRecord[]
      try {
        records = await bus.read(name, partition, offset, Math.min(readAtOnce, next - offset))
      } catch (thrown) {
        fault('unreadable', { topic, partition, offset }, asError(thrown).message)
        if (++broken >= maxBroken) break
        offset++
        continue
      }
      if (records.length === 0) {
        fault('gap', { topic, partition, offset }, `offsets ${offset} to ${next - 1} are not there`)
        break
      }
      for (const record of records) {
        if (record.offset >= next) break
        if (record.offset > offset) {
          fault('gap', { topic, partition, offset }, `offsets ${offset} to ${record.offset - 1} are not there`)
        }
        offset = record.offset + 1
        if (isAfter(record, topic)) return { topic, partition, offset: record.offset }
        if (want === undefined || want(record.headers)) await take(record, topic, next, give)
      }
    }
    return { topic, partition, offset: Math.max(offset, next) }
  }

  const recorded: RecordedRun = {
    run,
    files,
    bus,
    blobs,
    faults,
    async scan(topic, give, want) {
      const partitions = names.get(topicOnBus(run, topic)) ?? 0
      const ends: Place[] = []
      for (let p = 0; p < partitions; p++) ends.push(await scanPartition(topic, p, undefined, give, want))
      return ends
    },
    scanFrom: ({ topic, partition, offset }, give) => scanPartition(topic, partition, offset, give),
    async started() {
      let first: RunStarted | undefined
      await recorded.scan(
        'runs',
        ({ message }) => {
          first ??= message as RunStarted
        },
        headers => first === undefined && headers.type === 'run.started',
      )
      if (first !== undefined) return first
      throw new TroupeError('cli.run_empty', {
        boundary: 'cli',
        retriable: false,
        message: `run '${run}' holds no run.started: it ended before it began`,
      })
    },
    close: () => bus.close(),
  }
  return recorded
}

/** Facts of one topic, by type. */
export async function factsOf<T extends Fact['type']>(
  recorded: RecordedRun,
  topic: TopicName,
  types: readonly T[],
): Promise<readonly Extract<Fact, { type: T }>[]> {
  const found: Extract<Fact, { type: T }>[] = []
  const wanted = new Set<string>(types)
  await recorded.scan(
    topic,
    ({ message }) => found.push(message as Extract<Fact, { type: T }>),
    headers => headers.type === undefined || wanted.has(headers.type),
  )
  return found.filter(f => wanted.has(f.type))
}

/** Says on stderr what could not be read; the rest was shown. */
export function reportFaults(recorded: RecordedRun, most = 8): void {
  for (const fault of recorded.faults.slice(0, most)) process.stderr.write(`${faultText(fault)}\n`)
  const more = recorded.faults.length - most
  if (more > 0) process.stderr.write(`${more} more; \`troupe replay verify\` lists all\n`)
}

export const faultText = (fault: Fault): string => `${placeText(fault)} ${fault.kind}: ${fault.message}`

function faultKind(error: Error): FaultKind | undefined {
  if (error instanceof TroupeError && error.code.startsWith('blob.')) return 'blob'
  if (!(error instanceof MessageError)) return undefined
  if (error.code === 'codec.newer_version') return 'newer-schema'
  return error.code === 'codec.unknown_type' ? 'unknown-type' : 'unreadable'
}

/** `topic:partition:offset` */
export function placeOf(text: string): Place {
  const match = /^([a-z-]+):(\d{1,9}):(\d{1,15})$/.exec(text)
  const topic = match?.[1] as TopicName | undefined
  if (topic !== undefined && topic in topics) return { topic, partition: Number(match![2]), offset: Number(match![3]) }
  throw new TroupeError('cli.bad_place', {
    boundary: 'cli',
    retriable: false,
    message: `--at '${text.slice(0, 80)}' is no place in a log`,
    hint: `write topic:partition:offset, as in trajectories:0:42; topics: ${Object.keys(topics).join(', ')}`,
  })
}

async function timeOf(bus: Bus, run: RunId, at: Place): Promise<number> {
  const name = topicOnBus(run, at.topic)
  const there = (await bus.listTopics()).find(t => t.topic === name)
  const bounds = there && at.partition < there.partitions ? await bus.offsets(name, at.partition) : undefined
  if (bounds !== undefined && at.offset >= bounds.oldest && at.offset < bounds.next) {
    const [record] = await bus.read(name, at.partition, at.offset, 1)
    if (record !== undefined) return record.timestamp
  }
  throw new TroupeError('cli.bad_place', {
    boundary: 'cli',
    retriable: false,
    message: `${placeText(at)} is not in the log of run '${run}'`,
    hint:
      bounds === undefined
        ? `it has ${there?.partitions ?? 0} partitions of '${at.topic}'`
        : `the partition holds offsets ${bounds.oldest} to ${bounds.next - 1}`,
  })
}

/** The run of a shared bus that began last. */
async function newestOn(bus: Bus): Promise<string | undefined> {
  let newest: { readonly run: string; readonly at: number } | undefined
  for (const run of await runsOn(bus)) {
    const name = topicOnBus(runId(run), 'runs')
    const { oldest } = await bus.offsets(name, 0)
    const [first] = await bus.read(name, 0, oldest, 1).catch(() => [])
    if (first !== undefined && (newest === undefined || first.timestamp >= newest.at)) {
      newest = { run, at: first.timestamp }
    }
  }
  return newest?.run
}
