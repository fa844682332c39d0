/**
 * Forecasts the KV that an engine's trajectories will hold, now and while they grow.
 *
 * in   trajectories that are placed, grow, wait for a tool and leave
 * out  expected tokens now, and the expected peak
 * Some trajectories end and free their KV while others grow, so the peak is far below the sum of their possible
 * lengths.
 * Invariant: a sum that is read was recounted less than 1 s ago, and includes every change of trajectories since then.
 */
import type { GroupId } from '../../messages/ids'
import type { EngineSpec } from './kvAccount'
import type { LengthModel } from './lengthModel'

/** Horizons: amounts of future growth at which demand is computed, as shares of the largest known token budget. */
const horizons = [0, 1 / 32, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4] as const
/** Milliseconds after which the sums are recounted, since running trajectories have grown. */
const staleMs = 1000
/** EWMA weight of the latest turn's speed in an engine's decoding speed. */
const latestWeight = 0.1

/** Fields of a trajectory that the forecast reads. */
export interface Growing {
  readonly group: GroupId
  readonly promptTokens: number
  readonly boundTokens: number
  readonly contextTokens: number
  readonly phase: string
  /** Time at which the present turn or tool call began, ms. */
  readonly sinceMs: number
}

interface Counted {
  /**
   * [horizons] KV tokens that this trajectory, without its shared prompt, is expected to hold once it has grown by each
   * horizon: its length then, times the probability that it still runs. In a tool also times a weight that halves with
   * every `toolHalfLifeMs` spent in it.
   */
  readonly tokens: Float64Array
  readonly sharedTokens: number
}

/** Prompt of a group on this engine, and the number of members that share it. */
interface HeldPrompt {
  readonly tokens: number
  holders: number
}

export class Forecast<T extends Growing> {
  private readonly counted = new Map<T, Counted>()
  private readonly prompts = new Map<GroupId, HeldPrompt>()
  private readonly sums = new Float64Array(horizons.length)
  private promptTokens = 0
  /** Largest of `sums`, in tokens, without shared prompts; −1 if it must be recomputed. */
  private peak = -1
  private countedMs = Number.NEGATIVE_INFINITY
  /** Decoding speed of a running sequence in tokens per ms (EWMA); 0 until a turn has ended. */
  private speed = 0

  constructor(
    private readonly spec: EngineSpec,
    private readonly lengths: LengthModel,
    private readonly toolHalfLifeMs: number,
    /** Returns the largest token budget after a prompt of all trajectories seen so far. */
    private readonly longestBudget: () => number,
  ) {}

  /** Returns the tokens that this engine's trajectories probably hold now. */
  heldTokens(nowMs: number): number {
    this.recount(nowMs)
    return this.sums[0]! + this.promptTokens
  }

  /** Returns `heldTokens` plus the tokens of one more trajectory at its present length. */
  heldTokensWith(one: T, nowMs: number): number {
    return this.heldTokens(nowMs) + one.contextTokens + this.ownOffset(one) + this.newPromptTokens(one)
  }

  /** Returns the expected peak of held tokens until all trajectories on this engine have ended. */
  peakTokens(nowMs: number): number {
    this.recount(nowMs)
    if (this.peak < 0) {
      this.peak = 0
      for (const tokens of this.sums) if (tokens > this.peak) this.peak = tokens
    }
    return this.peak + this.promptTokens
  }

  /** Returns the expected peak with one more trajectory. @param expected what `expected` returns for it, in tokens */
  peakTokensWith(one: T, expected: Float64Array, nowMs: number): number {
    this.recount(nowMs)
    let most = 0
    for (let k = 0; k < horizons.length; k++) {
      const tokens = this.sums[k]! + expected[k]!
      if (tokens > most) most = tokens
    }
    return most + this.promptTokens + this.newPromptTokens(one)
  }

  /**
   * Returns, for each horizon, the expected KV tokens of a trajectory that is about to start, once it has grown by that
   * horizon, without the prompt that it shares with its group. Engines with equal `ownOffset` give equal results.
   */
  expected(one: T): Float64Array {
    const tokens = new Float64Array(horizons.length)
    this.expect(tokens, one, this.ownOffset(one), 0, 1)
    return tokens
  }

  /**
   * Returns the difference between the KV tokens of a trajectory's own blocks and the tokens of its context: plus half
   * a block, since its last block is half unused on average, minus the prompt that it shares with its group.
   */
  ownOffset(one: T): number {
    return this.spec.blockTokens / 2 - (this.counted.get(one)?.sharedTokens ?? this.shared(one))
  }

  /** Adds a trajectory to the forecast, or updates one that has changed. */
  put(one: T, nowMs: number): void {
    let counted = this.counted.get(one)
    if (counted === undefined) {
      counted = { tokens: new Float64Array(horizons.length), sharedTokens: this.shared(one) }
      this.counted.set(one, counted)
      this.holdPrompt(one.group, counted.sharedTokens, 1)
    } else this.add(counted, -1)
    this.count(one, counted, nowMs)
  }

  /** Removes a trajectory from the forecast. */
  take(one: T): void {
    const counted = this.counted.get(one)
    if (counted === undefined) return
    this.counted.delete(one)
    this.add(counted, -1)
    this.holdPrompt(one.group, counted.sharedTokens, -1)
  }

  /** Updates the decoding speed with a turn that generated `tokens` in `ms`. */
  grew(tokens: number, ms: number): void {
    if (tokens < 2 || !(ms > 0)) return
    const speed = tokens / ms
    this.speed = this.speed === 0 ? speed : this.speed + latestWeight * (speed - this.speed)
  }

  private count(one: T, counted: Counted, nowMs: number): void {
    const ownOffset = this.spec.blockTokens / 2 - counted.sharedTokens
    const sinceMs = Math.max(0, nowMs - one.sinceMs)
    if (one.phase === 'running') {
      const most = Math.max(1, one.boundTokens - one.contextTokens)
      this.expect(counted.tokens, one, ownOffset, Math.min(most, sinceMs * this.speed), 1)
    } else {
      // The engine may evict the KV of a trajectory in a tool: the trajectory's weight decays with the time in the
      // tool.
      this.expect(counted.tokens, one, ownOffset, 0, one.phase === 'tool' ? 2 ** (-sinceMs / this.toolHalfLifeMs) : 1)
    }
    this.add(counted, 1)
  }

  /**
   * Computes a trajectory's expected own tokens at each horizon. @param grown tokens generated since its length was
   * last reported @param weight share of its KV that probably is still on the engine, 0 to 1
   */
  private expect(into: Float64Array, one: T, ownOffset: number, grown: number, weight: number): void {
    const { lengths } = this
    const budget = Math.max(1, one.boundTokens - one.promptTokens)
    const left = Math.max(0, one.boundTokens - one.contextTokens - grown)
    const share = 1 - Math.min(1, left / budget)
    const longest = this.longestBudget()
    const before = lengths.cumulative(share)
    const survival = lengths.survivalOf(one.group)
    const own = one.contextTokens + grown + ownOffset
    into[0] = weight * own
    for (let k = 1; k < horizons.length; k++) {
      const more = horizons[k]! * longest
      const alive = more >= left ? 0 : survival(lengths.cumulative(share + more / budget) - before)
      into[k] = weight * alive * (own + more)
    }
  }

  /**
   * Returns the tokens of a prompt that its group shares, as kvAccount.ts counts them: whole blocks of one prompt per
   * group; a prompt of another length is not shared (0), nor is any on an engine without prefix sharing.
   */
  private shared({ group, promptTokens }: T): number {
    const { prefixSharing, blockTokens } = this.spec
    if (!prefixSharing) return 0
    const whole = Math.floor(promptTokens / blockTokens) * blockTokens
    const held = this.prompts.get(group)
    return held === undefined || held.tokens === whole ? whole : 0
  }

  private newPromptTokens(one: T): number {
    return this.prompts.has(one.group) ? 0 : this.shared(one)
  }

  private holdPrompt(group: GroupId, tokens: number, sign: 1 | -1): void {
    if (tokens === 0) return
    let held = this.prompts.get(group)
    if (held === undefined) {
      held = { tokens, holders: 0 }
      this.prompts.set(group, held)
      this.promptTokens += tokens
    }
    held.holders += sign
    if (held.holders > 0) return
    this.prompts.delete(group)
    this.promptTokens -= tokens
  }

  private add({ tokens }: Counted, sign: 1 | -1): void {
    this.peak = -1
    for (let k = 0; k < horizons.length; k++) this.sums[k]! += sign * tokens[k]!
  }

  private recount(nowMs: number): void {
    if (nowMs - this.countedMs < staleMs) return
    this.countedMs = nowMs
    this.peak = -1
    this.sums.fill(0)
    for (const [one, counted] of this.counted) this.count(one, counted, nowMs)
  }
}
