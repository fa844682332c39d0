/**
 * Keeps the newest of a run's telemetry: the latest status of each engine, ledger and actor, and how fast each engine
 * generates.
 *
 * in   the topic `telemetry`        out  latest statuses; tokens a second over the last statuses of each engine
 * Invariant: statuses of engines and ledgers before the newest `window` records of a partition are not decoded, which
 * makes the telemetry of a run of weeks quicker to read. Statuses of actors are all read, since an actor writes only
 * when its state changes.
 */
import type { ActorStatus, EngineStatus, LedgerStatus } from '../../messages/commands'
import type { RecordedRun } from '../../replay/log/recordedRun'

const window = 2000
/** Number of statuses of an engine over which its rate is measured. */
const rateOver = 10
/** Pause in ms between two statuses, normally 1 s, above which the time between them is not counted. */
const longestGapMs = 15_000

export class Telemetry {
  readonly engines = new Map<string, readonly EngineStatus[]>()
  readonly ledgers = new Map<string, LedgerStatus>()
  readonly actors = new Map<string, ActorStatus>()
  #next: number[] = []

  async refresh(recorded: RecordedRun): Promise<void> {
    const ends = await Promise.all(
      Array.from({ length: recorded.partitionsOf('telemetry') }, (_, p) => recorded.endOf('telemetry', p)),
    )
    const places = await recorded.scan(
      'telemetry',
      ({ message }) => {
        if (message.type === 'actor.status') this.actors.set(`${message.tree} ${message.actor}`, message)
        if (message.type === 'ledger.status') this.ledgers.set(message.engine, message)
        if (message.type !== 'engine.status') return
        this.engines.set(message.engine, [...(this.engines.get(message.engine) ?? []), message].slice(-rateOver))
      },
      ({ type }, { partition, offset }) => type === 'actor.status' || offset >= (ends[partition] ?? 0) - window,
      this.#next,
    )
    this.#next = places.map(({ offset }) => offset)
  }

  /**
   * Tokens per second that an engine sampled over its last `rateOver` statuses; null for fewer than two statuses.
   * Pauses of more than `longestGapMs` without a status, and restarts of the engine's counter, are left out.
   */
  tokensPerSecond(engine: string): number | null {
    const statuses = this.engines.get(engine) ?? []
    let [tokens, ms] = [0, 0]
    for (let i = 1; i < statuses.length; i++) {
      const [before, status] = [statuses[i - 1]!, statuses[i]!]
      const [passed, sampled] = [status.at - before.at, status.generatedTokens - before.generatedTokens]
      if (passed <= 0 || passed > longestGapMs || sampled < 0) continue
      tokens += sampled
      ms += passed
    }
    return ms === 0 ? null : (tokens * 1000) / ms
  }
}
