/**
 * What the trajectories of an engine are expected to hold of its KV, now and as they grow: some end on the way and give
 * back what they held, so that the sum of what each may grow to is far more than there ever is at once.
 *
 * in   trajectories that are placed, grow, rest and leave        out  expected tokens now, and the most at any time ahead
 * Invariant: sums equal what a recount gives, at the latest a second after anything has grown; none is negative.
 */
import type { GroupId } from '../../messages/ids'
import type { EngineSpec } from './ledger'
import type { LengthModel } from './lengthModel'

/** Growth ahead, as shares of the longest budget that is known. */
const horizons = [0, 1 / 32, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4] as const
const staleMs = 1000
/** Weight of the latest turn in the estimate of how fast an engine's sequences grow. */
const newest = 0.1

/** What of a trajectory counts. */
export interface Growing {
  readonly group: GroupId
  readonly promptTokens: number
  readonly boundTokens: number
  readonly contextTokens: number
  readonly phase: string
  /** When its turn began, or its tool. */
  readonly sinceMs: number
}

interface Counted {
  /** At each horizon. */
  readonly tokens: Float64Array
  readonly sharedTokens: number
}

/** A group's prompt, and how many share it here. */
interface HeldPrompt {
  readonly tokens: number
  holders: number
}

export class Forecast<T extends Growing> {
  private readonly counted = new Map<T, Counted>()
  private readonly prompts = new Map<GroupId, HeldPrompt>()
  private readonly sums = new Float64Array(horizons.length)
  private promptTokens = 0
  /** The largest of the sums; −1 where they have changed since. */
  private peak = -1
  private countedMs = Number.NEGATIVE_INFINITY
  /** Of a sequence while it runs, tokens a ms. 0 until a turn has ended. */
  private speed = 0

  constructor(
    private readonly spec: EngineSpec,
    private readonly lengths: LengthModel,
    private readonly toolHalfLifeMs: number,
    /** The longest budget after a prompt that is known, tokens. */
    private readonly longestBudget: () => number,
  ) {}

  /** What is thought to be held now. */
  heldTokens(nowMs: number): number {
    this.recount(nowMs)
    return this.sums[0]! + this.promptTokens
  }

  /** That, with one more, as it is now. */
  heldTokensWith(one: T, nowMs: number): number {
    return this.heldTokens(nowMs) + one.contextTokens + this.ownLess(one) + this.newPromptTokens(one)
  }

  /** The most that is expected to be held at once until all that are here have ended. */
  peakTokens(nowMs: number): number {
    this.recount(nowMs)
    if (this.peak < 0) {
      this.peak = 0
      for (const tokens of this.sums) if (tokens > this.peak) this.peak = tokens
    }
    return this.peak + this.promptTokens
  }

  /** That, with one more, of which `expected` is expected. */
  peakTokensWith(one: T, expected: Float64Array, nowMs: number): number {
    this.recount(nowMs)
    let most = 0
    for (let k = 0; k < horizons.length; k++) {
      const tokens = this.sums[k]! + expected[k]!
      if (tokens > most) most = tokens
    }
    return most + this.promptTokens + this.newPromptTokens(one)
  }

  /** What a trajectory that is about to begin is expected to hold at each horizon; the same where `ownLess` is. */
  expected(one: T): Float64Array {
    const tokens = new Float64Array(horizons.length)
    this.expect(tokens, one, this.ownLess(one), 0, 1)
    return tokens
  }

  /** Its own part less its context: it has the prompt with others, and half a block on average is taken and not used. */
  ownLess(one: T): number {
    return this.spec.blockTokens / 2 - (this.counted.get(one)?.sharedTokens ?? this.shared(one))
  }

  /** It is here, or something of it has changed. */
  put(one: T, nowMs: number): void {
    let counted = this.counted.get(one)
    if (counted === undefined) {
      counted = { tokens: new Float64Array(horizons.length), sharedTokens: this.shared(one) }
      this.counted.set(one, counted)
      this.holdPrompt(one.group, counted.sharedTokens, 1)
    } else this.add(counted, -1)
    this.count(one, counted, nowMs)
  }

  /** It is here no longer. */
  take(one: T): void {
    const counted = this.counted.get(one)
    if (counted === undefined) return
    this.counted.delete(one)
    this.add(counted, -1)
    this.holdPrompt(one.group, counted.sharedTokens, -1)
  }

  /** A turn took so long for so many tokens. */
  grew(tokens: number, ms: number): void {
    if (tokens < 2 || !(ms > 0)) return
    const speed = tokens / ms
    this.speed = this.speed === 0 ? speed : this.speed + newest * (speed - this.speed)
  }

  private count(one: T, counted: Counted, nowMs: number): void {
    const ownLess = this.spec.blockTokens / 2 - counted.sharedTokens
    const sinceMs = Math.max(0, nowMs - one.sinceMs)
    if (one.phase === 'running') {
      const most = Math.max(1, one.boundTokens - one.contextTokens)
      this.expect(counted.tokens, one, ownLess, Math.min(most, sinceMs * this.speed), 1)
    } else {
      // What rests in a tool may be evicted: the longer it rests, the less it is counted on.
      this.expect(counted.tokens, one, ownLess, 0, one.phase === 'tool' ? 2 ** (-sinceMs / this.toolHalfLifeMs) : 1)
    }
    this.add(counted, 1)
  }

  /** What a trajectory that has `grown` since it was last heard of is expected to hold at each horizon, its own part. */
  private expect(into: Float64Array, one: T, ownLess: number, grown: number, weight: number): void {
    const { lengths } = this
    const budget = Math.max(1, one.boundTokens - one.promptTokens)
    const left = Math.max(0, one.boundTokens - one.contextTokens - grown)
    const share = 1 - Math.min(1, left / budget)
    const longest = this.longestBudget()
    const before = lengths.cumulative(share)
    const survival = lengths.survivalOf(one.group)
    const own = one.contextTokens + grown + ownLess
    into[0] = weight * own
    for (let k = 1; k < horizons.length; k++) {
      const more = horizons[k]! * longest
      const alive = more >= left ? 0 : survival(lengths.cumulative(share + more / budget) - before)
      into[k] = weight * alive * (own + more)
    }
  }

  /** A group has one prompt an engine, as in the ledger; a member with another length does not share it. */
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
