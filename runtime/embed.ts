/**
 * Embeds actors in another program: opens a bus, a journal and an actor system, and closes them as one.
 *
 * in   an address or an open bus, a run's name          out  a journal to append to and to follow, hosts of behaviours
 * Invariant: `close` ends the hosts first, the youngest first, and the bus last, if it was opened here. Nothing that
 * was opened keeps the process alive afterwards.
 */
import { join } from 'node:path'
import type { Message, TopicName } from '../messages'
import { runId } from '../messages/ids'
import { type ActorLife, type ActorRef, type ActorSpec, createActorSystem } from './actor/system'
import { type BlobStore, memoryBlobs, openFileBlobs } from './bus/blobs'
import type { Bus } from './bus/bus'
import { openBus } from './bus/open'
import { pausingBlobs, pausingBus } from './bus/pausing'
import { type DiskPause, diskPause } from './disk/diskPause'
import { type Effects, systemEffects } from './effects'
import { TroupeError } from './errors'
import { type CloseOptions, type Host, type HostOptions, startHost } from './host/host'
import { diskAlarm } from './journal/diskAlarm'
import { entriesOf } from './journal/entries'
import type { Entry, Feed, Journal, TopicsOnBus } from './journal/journal'
import { openJournal } from './journal/openJournal'
import { createLog, type Log } from './log'
import type { MetricsRegistry } from './metrics'

export interface EmbedOptions {
  /** `memory:`, `lmdb:DIRECTORY`, `kafka://HOST:PORT[,…]`, or an open bus, which the caller closes. */
  readonly bus: string | Bus
  /** Name of the run. It is part of the names of topics, `troupe.<run>.<topic>`, and of consumer groups. */
  readonly run: string
  /** Names on the bus of topics that the caller created. Existing topics are not changed. */
  readonly topics?: TopicsOnBus
  /** Number of partitions of new topics that may have several. Default 1. */
  readonly partitions?: number
  /** Time for which new command topics keep a record, ms. Default: 24 h. */
  readonly commandRetentionMs?: number
  /**
   * Store for values larger than a record. Default: files in `blobs` below an lmdb log's directory, or in memory for a
   * memory bus; required for Kafka and for an open durable bus.
   */
  readonly blobs?: BlobStore
  readonly fx?: Effects
  /** Receives the actors' metrics: mailbox depths, waits, handling times, restarts, dead letters. */
  readonly metrics?: MetricsRegistry
  /** Receives log lines. Default: warnings and errors on stderr. */
  readonly log?: Log
  /**
   * Called when a host has failed for good: its restarts are used up, or its subscription or a request failed
   * permanently. Default: the error is logged.
   */
  readonly onFailed?: (error: Error) => void
  /** Milliseconds between two checks for room while the disk is full. Default 1000. */
  readonly lookEveryMs?: number
  /**
   * Ends all waits for disk space, now and later: the waiting work, `openTroupe` among it, fails with the error of the
   * full disk.
   */
  readonly stop?: AbortSignal
  /** Receives every state change of every actor. */
  readonly onLife?: (life: ActorLife) => void
}

/** A host's options, without those that `openTroupe` supplies. */
export type HostSpec<S, I extends Message, R> = Omit<
  HostOptions<S, I, R>,
  'name' | 'journal' | 'system' | 'fx' | 'log' | 'onFailed'
> & {
  /** Name of the host. Default: the behaviour's. */
  readonly name?: string
  /** Parent of the host's actor. Default: the top of the embedding's actor tree. */
  readonly under?: HostOptions<S, I, R>['system']
  /** Called instead of the embedding's `onFailed` when this host has failed for good. */
  readonly onFailed?: (error: Error) => void
}

export interface Embedded {
  readonly bus: Bus
  readonly journal: Journal
  /** Effects whose monotonic clock stands still while the log cannot be written, since the disk is full. */
  readonly fx: Effects
  readonly log: Log
  /**
   * Makes writes wait while the disk is full. Writes of `journal` wait already; make other writes to disk through its
   * `attempt`.
   */
  readonly disk: DiskPause
  /** Starts a behaviour. Await its `live` before appending commands: earlier commands are ignored. */
  host<S, I extends Message, R>(spec: HostSpec<S, I, R>): Promise<Host>
  /** Starts a top-level actor of the embedding; it ends with the embedding. */
  spawn<M>(spec: ActorSpec<M>): ActorRef<M>
  /**
   * Iterates over the recorded entries of these topics, then new ones; with 'latest' only new ones. `close` ends the
   * loop.
   */
  entries(topics: readonly TopicName[], from?: 'oldest' | 'latest'): AsyncGenerator<Entry, void, undefined>
  /** Closes everything that was opened here, once; then throws the first error of closing, if any. */
  close(options?: CloseOptions): Promise<void>
}

/**
 * Opens the embedding. @throws TroupeError the errors of `openBus` and of the blob store; bus.disk_full once `stop` is
 * aborted; config.no_blobs, config.topic_unknown, config.topics_collide; bus.topic_mismatch when an existing topic has
 * another number of partitions than `partitions`, or several although it must have one
 */
export async function openTroupe(options: EmbedOptions): Promise<Embedded> {
  const run = runId(options.run)
  const log = options.log ?? createLog(run, { level: process.env.TROUPE_LOG ?? 'warn' })
  const { lookEveryMs, stop } = options
  const outer = options.fx ?? systemEffects
  const disk = diskPause({ fx: outer, log, ...(lookEveryMs === undefined ? {} : { lookEveryMs }) })
  const { fx } = disk
  if (stop?.aborted) disk.close()
  stop?.addEventListener('abort', disk.close, { once: true })
  const onFailed = options.onFailed ?? ((error: Error) => log.error({ err: error }, 'an actor was given up'))
  const given = typeof options.bus === 'string' ? undefined : options.bus
  if (options.blobs === undefined) refuseWithoutBlobs(options.bus)
  const bus = given ?? (await openBus(options.bus as string, { effects: outer }))
  let journal: Journal
  try {
    const blobs = options.blobs ?? (await blobsOf(options.bus))
    journal = openJournal(pausingBus(bus, disk), pausingBlobs(blobs, disk), run, options.topics)
    disk.onPause(diskAlarm(openJournal(bus, blobs, run, options.topics), outer, log))
    await journal.create(options.partitions ?? 1, options.commandRetentionMs)
  } catch (thrown) {
    if (given === undefined) await bus.close()
    throw thrown
  }
  const system = createActorSystem({
    name: run,
    log,
    ...(options.metrics === undefined ? {} : { metrics: options.metrics }),
    ...(options.onLife === undefined ? {} : { onLife: options.onLife }),
    onDeadLetter: ({ actor, reason, error }) => log.debug({ actor, reason, err: error }, 'a message was not handled'),
  })
  const hosts = new Set<Host>()
  const aborter = new AbortController()
  let closing: Promise<void> | undefined

  async function host<S, I extends Message, R>({ under = system, ...spec }: HostSpec<S, I, R>): Promise<Host> {
    if (closing !== undefined) throw closed(run)
    const known = { name: spec.behaviour.name, onFailed }
    const started = await startHost({ ...known, ...spec, journal, system: under, fx, log })
    if (closing !== undefined) {
      await started.close()
      throw closed(run)
    }
    let ending: Promise<void> | undefined
    const once: Host = {
      live: started.live,
      close(how) {
        hosts.delete(once)
        ending ??= started.close(how)
        return ending
      },
    }
    hosts.add(once)
    return once
  }

  async function end(how: CloseOptions | undefined): Promise<void> {
    disk.close()
    const faults: unknown[] = []
    const attempt = (work: Promise<void>) => work.catch(fault => faults.push(fault))
    for (const one of [...hosts].reverse()) await attempt(one.close(how))
    aborter.abort()
    await attempt(system.stop())
    if (given === undefined) await attempt(bus.close())
    if (faults.length > 0) throw faults[0]
  }

  return {
    bus,
    journal,
    fx,
    log,
    disk,
    host,
    spawn: spec => system.spawn(spec),
    entries(topics, from = 'oldest') {
      const feeds: readonly Feed[] = topics.map(topic => ({ topic, from }))
      return entriesOf(journal, feeds, `entries.${fx.unique()}`, aborter.signal)
    },
    close(how) {
      closing ??= end(how)
      return closing
    },
  }
}

/**
 * For an embedding without `blobs`: refuses a bus for which no durable blob store is known (Kafka, and a durable bus
 * that the caller opened).
 */
function refuseWithoutBlobs(bus: string | Bus): void {
  const isRefused = typeof bus === 'string' ? bus.startsWith('kafka:') : bus.kind !== 'memory'
  if (!isRefused) return
  const kind = typeof bus === 'string' ? 'kafka' : bus.kind
  throw new TroupeError('config.no_blobs', {
    boundary: 'config',
    retriable: false,
    message: `the ${kind} bus needs a durable blob store: values larger than a record would be lost with the process`,
    hint: 'pass `blobs: await openFileBlobs(DIRECTORY)` with the bus',
  })
}

/**
 * Opens the blob store of a bus that `refuseWithoutBlobs` accepts: in `blobs` below the directory of an lmdb address,
 * else in memory.
 */
async function blobsOf(bus: string | Bus): Promise<BlobStore> {
  const isLmdb = typeof bus === 'string' && bus.startsWith('lmdb:')
  return isLmdb ? openFileBlobs(join(bus.slice('lmdb:'.length), 'blobs')) : memoryBlobs()
}

const closed = (run: string) =>
  new TroupeError('actor.closed', {
    boundary: 'actor',
    retriable: false,
    message: `the embedding of run '${run}' is closed or closing`,
  })
