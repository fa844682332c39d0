/**
 * Collects a simulation's measurements, turn by turn, and sums them over the engines at the end.
 *
 * in   starts and ends of turns, the engines' own tallies        out  a SimulationResult
 * Invariant: times are in simulated ms, shares are between 0 and 1, and the mean of nothing is 0.
 */
import type { PolicyName } from '../scheduling/contract'
import type { TurnRequest } from './sequence'
import type { SimulatedEngine } from './simulatedEngine'

export interface SimulationResult {
  readonly policy: PolicyName
  readonly engines: number
  readonly trajectories: number
  readonly turns: number
  /** Milliseconds from the first arrival to the last token. */
  readonly makespanMs: number
  /**
   * Mean milliseconds from the request of a turn to its first token: the scheduler's queue, the engine's queue and the
   * prompt.
   */
  readonly ttftMsMean: number
  /** Mean, over turns with more than one token, of a turn's milliseconds per token after its first. */
  readonly tpotMsMean: number
  /** Mean milliseconds from the request of a turn to its assignment to an engine. */
  readonly queueMsMean: number
  readonly preemptions: number
  /** Number of tokens whose keys and values were computed again, after an eviction or a preemption. */
  readonly recomputedTokens: number
  readonly generatedTokens: number
  readonly prefilledTokens: number
  /** Number of context tokens that admitted requests found in the engines' caches. */
  readonly cachedTokens: number
  /** Number of turns that ran on another engine than their trajectory's previous turn. */
  readonly moves: number
  /** Share of the engines' time in which no step ran. */
  readonly idleShare: number
  /** Largest share of the KV capacity that running sequences of any engine referenced at one time. */
  readonly kvPeakShare: number
  /** Share of the KV capacity that running sequences referenced, as a mean over time and engines. */
  readonly kvMeanShare: number
  /** Mean number of sequences in a step, weighted by the step's duration. */
  readonly runningMean: number
  readonly steps: number
  /** Generated tokens per second of all engines together. */
  readonly tokensPerSecond: number
}

const mean = (sum: number, n: number): number => (n === 0 ? 0 : sum / n)

export class Tally {
  private turns = 0
  private ttftMs = 0
  private tpotMs = 0
  private longTurns = 0
  private queueMs = 0
  private starts = 0
  private moves = 0

  constructor(private readonly trajectories: number) {}

  started(waitedMs: number, moved: boolean): void {
    this.starts++
    this.queueMs += waitedMs
    if (moved) this.moves++
  }

  turn({ newTokens }: TurnRequest, askedMs: number, firstTokenMs: number, endedMs: number): void {
    this.turns++
    this.ttftMs += firstTokenMs - askedMs
    if (newTokens < 2) return
    this.longTurns++
    this.tpotMs += (endedMs - firstTokenMs) / (newTokens - 1)
  }

  result(policy: PolicyName, engines: readonly SimulatedEngine[], makespanMs: number): SimulationResult {
    const sum = (of: (engine: SimulatedEngine) => number) => engines.reduce((total, engine) => total + of(engine), 0)
    const busyMs = sum(engine => engine.tally.busyMs)
    const kvTokens = engines[0]!.cache.blocks * engines[0]!.cache.blockTokens
    const generatedTokens = sum(engine => engine.tally.generatedTokens)
    return {
      policy,
      engines: engines.length,
      trajectories: this.trajectories,
      turns: this.turns,
      makespanMs,
      ttftMsMean: mean(this.ttftMs, this.turns),
      tpotMsMean: mean(this.tpotMs, this.longTurns),
      queueMsMean: mean(this.queueMs, this.starts),
      preemptions: sum(engine => engine.tally.preemptions),
      recomputedTokens: sum(engine => engine.tally.recomputedTokens),
      generatedTokens,
      prefilledTokens: sum(engine => engine.tally.prefilledTokens),
      cachedTokens: sum(engine => engine.cache.foundTokens),
      moves: this.moves,
      idleShare: makespanMs > 0 ? 1 - busyMs / (makespanMs * engines.length) : 0,
      kvPeakShare: Math.max(...engines.map(engine => engine.tally.peakKvTokens)) / kvTokens,
      kvMeanShare:
        makespanMs > 0 ? sum(engine => engine.tally.kvTokenMs) / (kvTokens * makespanMs * engines.length) : 0,
      runningMean: mean(
        sum(engine => engine.tally.runningMs),
        busyMs,
      ),
      steps: sum(engine => engine.tally.steps),
      tokensPerSecond: makespanMs > 0 ? (generatedTokens / makespanMs) * 1000 : 0,
    }
  }
}
