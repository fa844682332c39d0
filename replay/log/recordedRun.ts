/**
 * Opens a recorded run for reading only: every message with its position, and the records that could not be read.
 *
 * in   bus, run and `--at` position        out  entries topic by topic, partition by partition, in order; faults beside
 * them
 * Invariant: reading writes nothing to the bus or to the run's files, joins no consumer group and sends no dead letter,
 * so the run stays as it is. A record that cannot be read becomes a fault with its position, and the other records are
 * still delivered.
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
import { type Place, placeOf, placeText, timeOf } from './place'
import { type Watermark, watermarkAt } from './watermark'

export interface OpenLogOptions {
  /** Bus that holds the run: lmdb:DIR or kafka://HOST:PORT[,…]. */
  readonly bus: string
  /** Directory of the run's files when the bus is Kafka. */
  readonly dir?: string
  /**
   * Name of the run. Default: on Kafka the run that was started last, in an lmdb directory the run that was written
   * last.
   */
  readonly run?: string
  /** Position `topic:partition:offset` of the last record to read. Default: the log is read to its end. */
  readonly at?: string
  /** True to build the index of trajectories anew instead of using the cached one. */
  readonly reindex?: boolean
  /** True to check every page of an lmdb log before it is opened. */
  readonly checkAll?: boolean
  /**
   * Receives notices of one line each, such as: the index was built, or the nearest stored weights stand in for missing
   * ones.
   */
  readonly onNotice?: (text: string) => void
}

export interface RecordedRun {
  readonly run: RunId
  /** Bus address as the caller gave it; shown to name the log. */
  readonly address: string
  /**
   * Position of the last record that is read (`--at`); other partitions are read up to the time of this record.
   * undefined: the run is read to its end.
   */
  readonly at: Place | undefined
  readonly reindex: boolean
  /** The same run read to its end; this object itself when `at` is undefined. */
  readonly whole: RecordedRun
  readonly files: RunDirectory
  readonly bus: Bus
  readonly blobs: BlobStore
  /** Records that could not be read, in the order in which reads met them. */
  readonly faults: readonly Fault[]
  /**
   * Calls `take` with every entry of a topic, one partition after another, up to `--at`. `want` refuses records by
   * their headers, before they are decoded. `from`: first offset to read, by partition. Returns the position where each
   * partition ended.
   */
  scan(topic: TopicName, take: Take, want?: Want, from?: readonly number[]): Promise<readonly Place[]>
  /** Calls `take` only with the entries at `places`, which the caller sorts by partition, then by offset. */
  pick(topic: TopicName, places: readonly Omit<Place, 'topic'>[], take: Take, want?: Want): Promise<void>
  /** Offset at which reading of a partition ends, exclusive. */
  endOf(topic: TopicName, partition: number): Promise<number>
  partitionsOf(topic: TopicName): number
  /** Adds a fault, unless one of the same kind at the same position is listed already. */
  note(fault: Fault): void
  /** Passes one line for the user to `onNotice`. */
  notice(text: string): void
  /**
   * Calls `take` with the readable records of a partition from position `place` on, up to its end or `--at`; returns
   * the position from which to continue.
   */
  scanFrom(place: Place, take: Take): Promise<Place>
  /** Returns the run's `run.started`. @throws TroupeError replay.run_empty when the log has none that can be read */
  started(): Promise<RunStarted>
  close(): Promise<void>
}

/**
 * Distance between two wanted offsets above which `pick` starts another read. Up to it, reading the records between
 * them costs less.
 */
const farApart: Readonly<Record<Bus['kind'], number>> = { memory: 64, lmdb: 64, kafka: 2048 }

export async function openLog(options: OpenLogOptions): Promise<RecordedRun> {
  const at = options.at === undefined ? undefined : placeOf(options.at)
  const chosen = options.bus.startsWith('kafka:') ? options.run : chooseRun(options.bus, options.run)
  const { run, files, bus, blobs } = await openForReading(options.bus, chosen, {
    choose: newestOn,
    given: options.dir,
    checkAll: options.checkAll,
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
        message: `the log of run '${run}' has no readable run.started${end ? ` up to ${placeText(end.at)}` : ''}`,
        hint:
          `\`troupe replay verify --run ${run}\` lists unreadable records; if there is none, the run's process ended ` +
          `before it wrote one: start it again with \`troupe train RECIPE --run ${run}\``,
      })
    },
    close: () => bus.close(),
  }
  return recorded
}

/** Reads the facts of one topic that have one of the given types. */
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

/** Name of the most recently started run on a shared bus; undefined when the bus has none. */
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
