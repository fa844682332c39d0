/**
 * What a simulation measured: counted turn by turn, summed over the engines at its end.
 * Invariant: times are ms of the simulation, shares lie between 0 and 1, means of nothing are 0.
 */
import type { PolicyName } from '../scheduling/contract'
import type { TurnRequest } from './sequence'
import type { SimulatedEngine } from './simulatedEngine'

export interface SimulationResult {
  readonly policy: PolicyName
  readonly engines: number
  readonly trajectories: number
  readonly turns: number
  /** From the first arrival to the last token. */
  readonly makespanMs: number
  /** A turn's first token, from when the turn was asked for: the scheduler's queue, the engine's and the prompt. */
  readonly ttftMsMean: number
  /** A turn's further tokens, from the first to the last, of turns with more than one. */
  readonly tpotMsMean: number
  /** From when a turn was asked for to when an engine had it. */
  readonly queueMsMean: number
  readonly preemptions: number
  /** Tokens whose keys and values were computed again. */
  readonly recomputedTokens: number
  readonly generatedTokens: number
  readonly prefilledTokens: number
  /** Tokens of contexts that were found in the caches. */
  readonly cachedTokens: number
  /** Turns that were generated on another engine than the one before. */
  readonly moves: number
  /** Share of the engines' time in which no step ran. */
  readonly idleShare: number
  /** The most that an engine's running sequences referred to at once, as a share of its KV; the mean over time and engines. */
  readonly kvPeakShare: number
  readonly kvMeanShare: number
  /** Sequences in a step, on average over the time in which steps ran. */
  readonly runningMean: number
  readonly steps: number
  /** Generated ones, of all engines. */
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
