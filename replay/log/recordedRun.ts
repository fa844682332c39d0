/**
 * A recorded run, for reading only: every message with where it stood, and what could not be read.
 *
 * in   --bus, --run, --at        out  entries topic by topic, partition by partition, in order; faults beside them
 * Invariant: nothing is written, no group is joined, no dead letter is sent: a run that is looked at stays as it is. A
 * record that cannot be read is a fault with its place, and the rest is still given.
 */
import type { Fact, RunStarted } from '../../messages/facts'
import { type RunId, runId } from '../../messages/ids'
import { type TopicName, topicOnBus } from '../../messages/topics'
import type { BlobStore } from '../../runtime/bus/blobs'
import type { Bus } from '../../runtime/bus/bus'
import { TroupeError } from '../../runtime/errors'
import { chooseRun, openForReading, runsOn } from '../../runtime/openRun'
import type { RunDirectory } from '../../runtime/runDirectory'
import { type Fault, faultList } from './faults'
import { partitionScan, type Take, type Want } from './partitionScan'
import { type Place, placeOf, timeOf } from './place'
import { type Watermark, watermarkAt } from './watermark'

export interface OpenLogOptions {
  /** lmdb:DIR or kafka://HOST:PORT[,…] */
  readonly bus: string
  /** On Kafka: where the run keeps its files. */
  readonly dir?: string
  readonly run?: string
  readonly at?: string
  readonly reindex?: boolean
  /** Receives one line when the index is built, or when weights are replaced by the nearest that are kept. */
  readonly onNotice?: (text: string) => void
}

export interface RecordedRun {
  readonly run: RunId
  /** As it was asked for; a name for where the log is. */
  readonly address: string
  /** Where the look at the run ends, if not at its end. */
  readonly at: Place | undefined
  readonly reindex: boolean
  /** The same run, to its end; itself where nothing was said of `at`. */
  readonly whole: RecordedRun
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
  pick(topic: TopicName, places: readonly Omit<Place, 'topic'>[], take: Take, want?: Want): Promise<void>
  /** Where the look at a partition ends, exclusive. */
  endOf(topic: TopicName, partition: number): Promise<number>
  partitionsOf(topic: TopicName): number
  /** Adds to the faults, once a place and kind. */
  note(fault: Fault): void
  /** Hands one line to `onNotice`. */
  notice(text: string): void
  /** From `place` on: what has come since; the next place. */
  scanFrom(place: Place, take: Take): Promise<Place>
  /** The run's first fact. @throws TroupeError replay.run_empty */
  started(): Promise<RunStarted>
  close(): Promise<void>
}

/** Records between two that are wanted, over which another read is cheaper than reading on. */
const farApart: Readonly<Record<Bus['kind'], number>> = { memory: 64, lmdb: 64, kafka: 2048 }

export async function openLog(options: OpenLogOptions): Promise<RecordedRun> {
  const at = options.at === undefined ? undefined : placeOf(options.at)
  const chosen = options.bus.startsWith('kafka:') ? options.run : chooseRun(options.bus, options.run)
  const { run, files, bus, blobs } = await openForReading(options.bus, chosen, {
    choose: newestOn,
    given: options.dir,
  })
  try {
    const topics = new Map((await bus.listTopics()).map(config => [config.topic, config.partitions]))
    const end = at === undefined ? undefined : { at, look: watermarkAt(bus, run, at, await timeOf(bus, run, at)) }
    return reader({ run, files, bus, blobs }, options, topics, end)
  } catch (thrown) {
    await bus.close()
    throw thrown
  }
}

function reader(
  log: Pick<RecordedRun, 'run' | 'files' | 'bus' | 'blobs'>,
  options: OpenLogOptions,
  topics: ReadonlyMap<string, number>,
  end?: { readonly at: Place; readonly look: Watermark },
): RecordedRun {
  const { run, files, bus, blobs } = log
  const { faults, note } = faultList()
  const scanPartition = partitionScan({ run, bus, blobs, end: end?.look, note })
  let whole: RecordedRun | undefined

  const recorded: RecordedRun = {
    run,
    address: options.bus,
    at: end?.at,
    get whole() {
      whole ??= end === undefined ? recorded : reader(log, options, topics)
      return whole
    },
    reindex: options.reindex === true,
    files,
    bus,
    blobs,
    faults,
    note,
    notice: text => options.onNotice?.(text),
    partitionsOf: topic => topics.get(topicOnBus(run, topic)) ?? 0,
    async scan(topic, give, want, from) {
      const ends: Place[] = []
      for (let p = 0; p < recorded.partitionsOf(topic); p++) {
        ends.push(await scanPartition(topic, p, from?.[p], give, want))
      }
      return ends
    },
    async pick(topic, places, give, want = () => true) {
      for (let i = 0; i < places.length; ) {
        const { partition, offset: first } = places[i]!
        const wanted = new Set<number>()
        let last = first
        for (; places[i]?.partition === partition && places[i]!.offset <= last + farApart[bus.kind]; i++) {
          last = places[i]!.offset
          wanted.add(last)
        }
        const isWanted: Want = (headers, record) => wanted.has(record.offset) && want(headers, record)
        await scanPartition(topic, partition, first, give, isWanted, last + 1)
      }
    },
    async endOf(topic, partition) {
      const { next } = await bus.offsets(topicOnBus(run, topic), partition)
      return end === undefined ? next : Math.min(next, await end.look(topic, partition))
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
      throw new TroupeError('replay.run_empty', {
        boundary: 'replay',
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
