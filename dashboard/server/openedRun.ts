/**
 * One run that the dashboard has open: its log, its index, and the facts of its small topics.
 *
 * in   a bus address, a run's name        out  the state as of the latest refresh
 * Invariant: the log is only read. A refresh reads the records since the last refresh, and each partition's last one.
 */
import { topicOnBus } from '../../messages/topics'
import { placeText } from '../../replay/log/place'
import { configOf } from '../../replay/log/recordedConfig'
import { openLog, type RecordedRun } from '../../replay/log/recordedRun'
import { replayError } from '../../replay/replayError'
import { type FollowedIndex, followIndex } from '../../replay/trajectoryIndex/followIndex'
import { hasHeartbeat } from '../../runtime/bus/lmdb/holder'
import { systemEffects } from '../../runtime/effects'
import { directoryOf, runDirectory } from '../../runtime/runDirectory'
import type { RunState } from '../api'
import { RunFacts } from './runFacts'
import { Telemetry } from './telemetry'

/** Topics whose newest records tell whether a run is alive. */
const watched = ['telemetry', 'trajectories', 'runs', 'learner'] as const
/** Time in ms without a record after which a run counts as cut off, unless the writer of its log sends heartbeats. */
const liveMs = 15_000
/** Minimum time between two refreshes, ms. */
const refreshMs = 400

export interface Newest {
  readonly at: number
  readonly place: string
  readonly records: number
}

export class OpenedRun {
  readonly facts = new RunFacts()
  readonly telemetry = new Telemetry()
  newest: Newest = { at: 0, place: '', records: 0 }
  /** Rewards above this are positive: the recipe's `selection.positiveAbove`, or 0 if the recipe cannot be read. */
  positiveAbove = 0
  #beganAt = Number.NEGATIVE_INFINITY
  #reading: Promise<void> | undefined
  #isReading = false

  private constructor(
    readonly recorded: RecordedRun,
    readonly index: FollowedIndex,
  ) {}

  static async open(bus: string, run: string, directory: string | undefined): Promise<OpenedRun> {
    const recorded = await openLog({ bus, run, ...(directory === undefined ? {} : { dir: directory }) })
    try {
      if (recorded.partitionsOf('runs') === 0)
        throw replayError('run_empty', `run '${run}' has no topics yet`, 'try again')
      return await OpenedRun.over(recorded)
    } catch (thrown) {
      await recorded.close()
      throw thrown
    }
  }

  /** Reads a run that the caller has opened, and will close. */
  static async over(recorded: RecordedRun): Promise<OpenedRun> {
    const opened = new OpenedRun(recorded, await followIndex(recorded))
    await opened.refresh()
    // Today's schema may refuse an old recipe; its facts can be shown all the same.
    opened.positiveAbove = (await configOf(recorded).catch(() => undefined))?.selection.positiveAbove ?? 0
    return opened
  }

  isPositive(reward: number | null): boolean {
    return reward !== null && reward > this.positiveAbove
  }

  /**
   * Reads new records, unless a read is under way or began within the last 400 ms. Calls that overlap share one read.
   * `notBefore`: earliest time (of `elapsed`) at which the read may have begun; if the latest read began earlier,
   * another read is made.
   */
  async refresh(notBefore?: number): Promise<void> {
    const isDone = () =>
      notBefore === undefined
        ? this.#isReading || systemEffects.elapsed() - this.#beganAt < refreshMs
        : this.#beganAt >= notBefore
    if (!isDone()) await this.#reading?.catch(() => {}) // the call that began this read gets its error
    if (!isDone()) {
      this.#beganAt = systemEffects.elapsed()
      this.#isReading = true
      this.#reading = this.#refresh().finally(() => {
        this.#isReading = false
      })
    }
    return this.#reading
  }

  /** Reads the index after the facts about the run, so that a run that is shown as finished is shown whole. */
  async #refresh(): Promise<void> {
    await this.facts.refresh(this.recorded)
    await this.index.refresh()
    this.newest = await this.#newest()
  }

  async #newest(): Promise<Newest> {
    const { recorded } = this
    let found = { at: 0, place: '' }
    let records = 0
    for (const topic of watched) {
      for (let partition = 0; partition < recorded.partitionsOf(topic); partition++) {
        const name = topicOnBus(recorded.run, topic)
        const { oldest, next } = await recorded.bus.offsets(name, partition)
        records += next - oldest
        const [last] = next > oldest ? await recorded.bus.read(name, partition, next - 1, 1).catch(() => []) : []
        if (last !== undefined && last.timestamp >= found.at)
          found = { at: last.timestamp, place: placeText({ topic, partition, offset: last.offset }) }
      }
    }
    return { ...found, records }
  }

  get state(): RunState {
    const { finished } = this.facts
    if (finished !== undefined) return finished.outcome
    return systemEffects.now() - this.newest.at < liveMs || this.#hasWriter() ? 'live' : 'cut-off'
  }

  /** True while a process holds the log open for writing. Known only for lmdb logs; false for others. */
  #hasWriter(): boolean {
    const { address, run } = this.recorded
    return address.startsWith('lmdb:') && hasHeartbeat(runDirectory(directoryOf(address), run).log)
  }

  close(): Promise<void> {
    return this.recorded.close()
  }
}
