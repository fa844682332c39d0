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
type FaultKind = 'gap' | 'torn-tail' | 'newer-schema' | 'unknown-type' | 'unreadable' | 'blob'

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
  readonly reindex?: boolean
}

type Want = (headers: BusRecord['headers'], record: BusRecord) => boolean
/** A promise is waited for before the next entry. */
type Take = (entry: Entry, record: BusRecord) => unknown

export interface RecordedRun {
  readonly run: RunId
  /** As it was asked for; a name for where the log is. */
  readonly address: string
  /** Where the look at the run ends, if not at its end. */
  readonly at: Place | undefined
  readonly reindex: boolean
  readonly files: RunDirectory
  readonly bus: Bus
  readonly blobs: BlobStore
  /** In the order in which they were met. */
  readonly faults: readonly Fault[]
  /**
   * Calls `take` with every entry of a topic, a partition after the other, up to `--at`. `want` spares the unpacking of
   * what it refuses by its headers. `from`: where to begin in each partition. Returns where each partition ended.
   */
  scan(topic: TopicName, take: Take, want?: Want, from?: readonly number[]): Promise<readonly Place[]>
  /** As scan, of these places only: partition by partition, offsets ascending. */
  pick(topic: TopicName, places: readonly Omit<Place, 'topic'>[], take: Take): Promise<void>
  partitionsOf(topic: TopicName): number
  /** Adds to the faults, once a place and kind. */
  note(fault: Fault): void
  /** From `place` on: what has come since; the next place. */
  scanFrom(place: Place, take: Take): Promise<Place>
  /** The run's first fact. @throws TroupeError cli.run_empty */
  started(): Promise<RunStarted>
  close(): Promise<void>
}

const readAtOnce = 4096
/** Records between two that are wanted, over which another read is cheaper than reading on. */
const farApart: Readonly<Record<Bus['kind'], number>> = { memory: 64, lmdb: 64, kafka: 2048 }

export function withRun(command: Command): Command {
  return withBus(command)
    .option('--run <id>', 'the run (default: the newest)')
    .option('--at <topic:partition:offset>', 'the run as it stood when this record was written')
    .option('--reindex', 'make the index of its trajectories anew')
}

export const placeText = ({ topic, partition, offset }: Place): string => `${topic}:${partition}:${offset}`

export async function openRecorded(options: ReadOptions): Promise<RecordedRun> {
  const at = options.at === undefined ? undefined : placeOf(options.at)
  const chosen = options.bus.startsWith('kafka:') ? options.run : chooseRun(options.bus, options.run)
  const { run, files, bus, blobs } = await openForReading(options.bus, chosen, newestOn)
  try {
    const recorded = await reader({ run, files, bus, blobs }, options, at)
    return recorded
  } catch (thrown) {
    await bus.close()
    throw thrown
  }
}

async function reader(
  { run, files, bus, blobs }: Pick<RecordedRun, 'run' | 'files' | 'bus' | 'blobs'>,
  options: ReadOptions,
  at: Place | undefined,
) {
  const faults: Fault[] = []
  const seenFaults = new Set<string>()
  const names = new Map((await bus.listTopics()).map(config => [config.topic, config.partitions]))
  const until = at === undefined ? Number.POSITIVE_INFINITY : await timeOf(bus, run, at)

  function note(fault: Fault): void {
    const key = `${fault.kind} ${placeText(fault)}`
    if (seenFaults.has(key)) return
    seenFaults.add(key)
    faults.push(fault)
  }
  const fault = (kind: FaultKind, place: Place, message: string): void => note({ kind, ...place, message })

  /** Where the look at this run ends in a partition. */
  function isAfter(record: BusRecord, topic: TopicName): boolean {
    if (at === undefined) return false
    if (topic === at.topic && record.partition === at.partition) return record.offset > at.offset
    return record.timestamp > until
  }

  async function take(record: BusRecord, topic: TopicName, next: number, give: Take): Promise<void> {
    const { partition, offset, timestamp, headers } = record
    let entry: Entry
    try {
      const value = headers.blob === undefined ? record.value : await blobs.get(headers.blob)
      entry = { message: decode({ headers, value }), topic, partition, offset, timestamp }
    } catch (thrown) {
      const error = asError(thrown)
      const kind = faultKind(error)
      if (kind === undefined) throw thrown
      const torn = kind === 'unreadable' && offset === next - 1
      fault(torn ? 'torn-tail' : kind, { topic, partition, offset }, error.message)
      return
    }
    const taken = give(entry, record)
    if (taken instanceof Promise) await taken
  }

  /** The end of a stretch that the bus itself refuses to give, looked for in growing steps, then by halves. */
  async function nextReadable(name: string, partition: number, broken: number, next: number): Promise<number> {
    const reads = (offset: number) =>
      bus.read(name, partition, offset, 1).then(
        found => found.length > 0,
        () => false,
      )
    let bad = broken
    let good = next
    for (let step = 1; broken + step < next; step *= 2) {
      if (await reads(broken + step)) {
        good = broken + step
        break
      }
      bad = broken + step
    }
    while (good - bad > 1) {
      const middle = (bad + good) >> 1
      if (await reads(middle)) good = middle
      else bad = middle
    }
    return good
  }

  async function scanPartition(
    topic: TopicName,
    partition: number,
    from: number | undefined,
    give: Take,
    want?: Want,
    until = Number.POSITIVE_INFINITY,
  ): Promise<Place> {
    const name = topicOnBus(run, topic)
    const { oldest, next: end } = await bus.offsets(name, partition)
    const next = Math.min(end, until)
    let offset = Math.max(from ?? oldest, oldest)
    let atOnce = readAtOnce
    while (offset < next) {
      let records: readonly BusRecord[]
      try {
        records = await bus.read(name, partition, offset, Math.min(atOnce, next - offset))
        atOnce = readAtOnce
      } catch (thrown) {
        // What is broken may stand anywhere in what was asked for.
        if (atOnce > 1) {
          atOnce = Math.min(atOnce, next - offset) >> 1 || 1
          continue
        }
        const readable = await nextReadable(name, partition, offset, end)
        const through = readable - 1 > offset ? ` (through offset ${readable - 1})` : ''
        fault('unreadable', { topic, partition, offset }, `${asError(thrown).message}${through}`)
        offset = readable
        continue
      }
      const missing = (through: number) =>
        fault('gap', { topic, partition, offset }, `offsets ${offset} to ${through} are not there`)
      if (records.length === 0) {
        missing(end - 1)
        break
      }
      for (const record of records) {
        if (record.offset > offset) missing(record.offset - 1)
        offset = record.offset + 1
        if (record.offset >= next) break
        if (isAfter(record, topic)) return { topic, partition, offset: record.offset }
        if (want === undefined || want(record.headers, record)) await take(record, topic, end, give)
      }
    }
    return { topic, partition, offset: Math.max(offset, next) }
  }

  const recorded: RecordedRun = {
    run,
    address: options.bus,
    at,
    reindex: options.reindex === true,
    files,
    bus,
    blobs,
    faults,
    note,
    partitionsOf: topic => names.get(topicOnBus(run, topic)) ?? 0,
    async scan(topic, give, want, from) {
      const ends: Place[] = []
      for (let p = 0; p < recorded.partitionsOf(topic); p++) {
        ends.push(await scanPartition(topic, p, from?.[p], give, want))
      }
      return ends
    },
    async pick(topic, places, give) {
      for (let i = 0; i < places.length; ) {
        const { partition, offset: first } = places[i]!
        const wanted = new Set<number>()
        let last = first
        for (; places[i]?.partition === partition && places[i]!.offset <= last + farApart[bus.kind]; i++) {
          last = places[i]!.offset
          wanted.add(last)
        }
        await scanPartition(topic, partition, first, give, (_, record) => wanted.has(record.offset), last + 1)
      }
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

const faultText = (fault: Fault): string => `${placeText(fault)} ${fault.kind}: ${fault.message}`

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
