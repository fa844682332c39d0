/**
 * A ledger of every engine's KV cache: who holds how many tokens where, and what they may still grow to (DESIGN §7).
 *
 * in   what happens to engines and trajectories, with the time where it matters     out  sums per engine, kept up to date
 * Invariant: every sum equals what a recount over the holdings gives, and none is negative. Each operation is O(1).
 * The class changes only itself: no clock, no randomness; time is an argument, in ms of any one clock.
 *
 * referenced: blocks of trajectories that are generating. cached: blocks kept between turns, evictable. committed: what
 * placed trajectories are expected to need in all; of those in a tool it halves every `toolHalfLifeMs`.
 * A group's prompt counts once an engine that shares prefixes, floored to whole blocks; the rest of each trajectory is
 * rounded up to blocks.
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'

export interface EngineSpec {
  readonly engine: EngineId
  readonly kvTokens: number
  readonly blockTokens: number
  readonly maxSequences: number
  /** Longest context that the engine takes. */
  readonly contextTokens: number
  /** One copy of a common prompt serves a whole group. */
  readonly prefixSharing: boolean
  /** As in the engine's capabilities: 0 where a request's priority does not choose the victim of a preemption. */
  readonly prioritySign: -1 | 0 | 1
}

/** waiting: placed, its next turn is not started. running: generating. tool: between two turns. */
export type HoldingState = 'waiting' | 'running' | 'tool'

export interface Holding {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  readonly engine: EngineId
  readonly state: HoldingState
  /** Tokens of it that the engine has computed, as far as is known; 0 before its first turn there. */
  readonly tokens: number
  /** What it is expected to need in all, tokens. */
  readonly needTokens: number
  /** Its part of the group's shared prompt: whole blocks; 0 where nothing is shared. */
  readonly sharedTokens: number
  /** When it went to its tool. */
  readonly sinceMs: number
}

/** An engine's sums. Tokens. */
export interface EngineAccount {
  readonly spec: EngineSpec
  readonly referencedTokens: number
  readonly cachedTokens: number
  readonly running: number
  readonly waiting: number
  readonly inTool: number
  /** Referenced tokens by the engine's last report, less the ledger's own at that time: the ledger's error. */
  readonly driftTokens: number
  /** What the last report had beyond all that running trajectories may grow to: someone else's requests. */
  readonly foreignTokens: number
}

/** What of an engine's status corrects the ledger. */
export interface KvReport {
  readonly kvTokens: number
  readonly referencedTokens: number
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

interface SharedPrompt {
  readonly tokens: number
  holders: number
  /** Holders whose tokens are computed, and those of them that generate. */
  computed: number
  running: number
}

interface Account extends Writable<EngineAccount> {
  /** Commitments of waiting and running trajectories, and of shared prompts. */
  firmTokens: number
  /** Commitments of the running ones alone. */
  runningNeedTokens: number
  /** Commitments of those in a tool, as they would weigh at the ledger's `baseMs`. */
  toolWeight: number
  readonly shared: Map<GroupId, SharedPrompt>
}

export interface LedgerOptions {
  /** Default 10 s; Infinity: no decay. */
  readonly toolHalfLifeMs?: number
}

export class Ledger {
  private readonly accounts = new Map<EngineId, Account>()
  private readonly byTrajectory = new Map<TrajectoryId, Writable<Holding>>()
  private readonly halfLifeMs: number
  private joined: readonly Account[] = []
  /** Weights in a tool are kept as of one time for all engines: a decision then computes one power, not one an engine. */
  private baseMs = 0
  private decayMs = 0
  private decay = 1

  constructor(options: LedgerOptions = {}) {
    this.halfLifeMs = options.toolHalfLifeMs ?? 10_000
    if (!(this.halfLifeMs > 0)) throw new RangeError(`a half-life of ${this.halfLifeMs} ms`)
  }

  /** Engines in the order in which they joined. */
  get engines(): readonly EngineAccount[] {
    return this.joined
  }

  engine(engine: EngineId): EngineAccount | undefined {
    return this.accounts.get(engine)
  }

  holding(trajectory: TrajectoryId): Holding | undefined {
    return this.byTrajectory.get(trajectory)
  }

  /** Throws RangeError on an engine that is there already, or sizes that are none. */
  join(spec: EngineSpec): void {
    if (this.accounts.has(spec.engine)) throw new RangeError(`engine ${spec.engine} has joined already`)
    for (const name of ['kvTokens', 'blockTokens', 'maxSequences', 'contextTokens'] as const) {
      if (!(spec[name] > 0)) throw new RangeError(`engine ${spec.engine}: ${name} is ${spec[name]}`)
    }
    this.accounts.set(spec.engine, {
      spec,
      referencedTokens: 0,
      cachedTokens: 0,
      running: 0,
      waiting: 0,
      inTool: 0,
      driftTokens: 0,
      foreignTokens: 0,
      firmTokens: 0,
      runningNeedTokens: 0,
      toolWeight: 0,
      shared: new Map(),
    })
    this.joined = [...this.accounts.values()]
  }

  /** The engine is gone with all that it held. Returns what it held. O(holdings). */
  leave(engine: EngineId): readonly TrajectoryId[] {
    if (!this.accounts.delete(engine)) return []
    this.joined = [...this.accounts.values()]
    const lost = [...this.byTrajectory.values()].filter(one => one.engine === engine).map(one => one.trajectory)
    for (const trajectory of lost) this.byTrajectory.delete(trajectory)
    return lost
  }

  /** Places a trajectory on an engine; it waits there, and holds nothing until it runs, unless `heldTokens` says so. */
  admit(placed: {
    readonly trajectory: TrajectoryId
    readonly group: GroupId
    readonly engine: EngineId
    readonly promptTokens: number
    readonly needTokens: number
    readonly heldTokens?: number
  }): void {
    if (this.byTrajectory.has(placed.trajectory)) throw new RangeError(`${placed.trajectory} is placed already`)
    const account = this.account(placed.engine)
    const holding: Writable<Holding> = {
      trajectory: placed.trajectory,
      group: placed.group,
      engine: placed.engine,
      state: 'waiting',
      tokens: placed.heldTokens ?? 0,
      needTokens: placed.needTokens,
      sharedTokens: this.sharedPart(account, placed.group, placed.promptTokens),
      sinceMs: 0,
    }
    this.byTrajectory.set(placed.trajectory, holding)
    this.count(account, holding, 1)
  }

  /** Its turn starts with a context of `tokens`. */
  run(trajectory: TrajectoryId, tokens: number): void {
    this.change(trajectory, { state: 'running', tokens })
  }

  /** More of it is known: its length, what it needs in all. */
  grow(trajectory: TrajectoryId, known: { readonly tokens?: number; readonly needTokens?: number }): void {
    this.change(trajectory, known)
  }

  /** Its turn ended with a context of `tokens`; it is between turns since `nowMs`. */
  toTool(trajectory: TrajectoryId, tokens: number, nowMs: number): void {
    this.change(trajectory, { state: 'tool', tokens, sinceMs: nowMs })
  }

  /** It is back with its next turn, and waits. */
  return(trajectory: TrajectoryId, needTokens: number): void {
    this.change(trajectory, { state: 'waiting', needTokens })
  }

  /** It is gone from its engine. Unknown trajectories are passed over: releases are delivered at least once. */
  release(trajectory: TrajectoryId): void {
    const holding = this.byTrajectory.get(trajectory)
    if (holding === undefined) return
    this.byTrajectory.delete(trajectory)
    this.count(this.account(holding.engine), holding, -1)
  }

  /** What the engine says itself. It replaces the correction of the report before; one that is no report is passed over. */
  correct(engine: EngineId, report: KvReport): void {
    const account = this.account(engine)
    // A comparison with NaN is always false: no engine would ever be full.
    if (![report.kvTokens, report.referencedTokens].every(tokens => Number.isFinite(tokens) && tokens >= 0)) return
    if (report.kvTokens > 0 && report.kvTokens !== account.spec.kvTokens) {
      account.spec = { ...account.spec, kvTokens: report.kvTokens }
    }
    account.driftTokens = report.referencedTokens - account.referencedTokens
    let mayGrowTo = account.runningNeedTokens
    for (const prompt of account.shared.values()) if (prompt.running > 0) mayGrowTo += prompt.tokens
    account.foreignTokens = Math.max(0, report.referencedTokens - Math.max(mayGrowTo, account.referencedTokens))
  }

  /** What the placed trajectories of an engine are expected to need in all, decayed to `nowMs`. */
  committedTokens(engine: EngineId | EngineAccount, nowMs: number): number {
    const account = this.account(engine)
    if (account.inTool === 0) return account.firmTokens
    if (this.decayMs !== nowMs) {
      this.decayMs = nowMs
      this.decay = 2 ** (-(nowMs - this.baseMs) / this.halfLifeMs)
    }
    return account.firmTokens + Math.max(0, account.toolWeight * this.decay)
  }

  /** What placing one more would add to `committedTokens`: less where the group's prompt is there already. */
  addedTokens(engine: EngineId | EngineAccount, group: GroupId, promptTokens: number, needTokens: number): number {
    const account = this.account(engine)
    const shared = this.sharedPart(account, group, promptTokens)
    const there = shared > 0 && account.shared.has(group)
    return roundUp(needTokens - shared, account.spec.blockTokens) + (there ? 0 : shared)
  }

  /** What starting a turn with a context of `tokens` would add to `referencedTokens`. */
  startTokens(trajectory: TrajectoryId, tokens: number): number {
    const holding = this.required(trajectory)
    const account = this.account(holding.engine)
    const prompt = account.shared.get(holding.group)
    const there = holding.sharedTokens > 0 && prompt !== undefined && prompt.running > 0
    return roundUp(tokens - holding.sharedTokens, account.spec.blockTokens) + (there ? 0 : holding.sharedTokens)
  }

  private change(trajectory: TrajectoryId, to: Partial<Writable<Holding>>): void {
    const holding = this.required(trajectory)
    const account = this.account(holding.engine)
    this.count(account, holding, -1)
    Object.assign(holding, to)
    this.count(account, holding, 1)
  }

  /** Adds (sign 1) or takes away (−1) all that a holding contributes. */
  private count(account: Account, holding: Holding, sign: 1 | -1): void {
    const { blockTokens } = account.spec
    const own = holding.tokens > 0 ? roundUp(holding.tokens - holding.sharedTokens, blockTokens) : 0
    const need = roundUp(Math.max(holding.needTokens, holding.tokens) - holding.sharedTokens, blockTokens)
    if (holding.state === 'running') {
      account.running += sign
      account.referencedTokens += sign * own
      account.runningNeedTokens += sign * need
    } else account.cachedTokens += sign * own
    if (holding.state === 'tool') {
      account.inTool += sign
      this.countTool(account, need, holding.sinceMs, sign)
    } else account.firmTokens += sign * need
    if (holding.state === 'waiting') account.waiting += sign
    if (holding.sharedTokens > 0) this.countShared(account, holding, sign)
  }

  private countTool(account: Account, need: number, sinceMs: number, sign: 1 | -1): void {
    if (account.inTool === 0) {
      // Nobody is left: what rounding left goes too.
      account.toolWeight = 0
      return
    }
    if ((sinceMs - this.baseMs) / this.halfLifeMs > 500) this.rebase(sinceMs)
    account.toolWeight += sign * need * 2 ** ((sinceMs - this.baseMs) / this.halfLifeMs)
  }

  /** Far from `baseMs`, weights would leave the range of a double. */
  private rebase(toMs: number): void {
    const factor = 2 ** (-(toMs - this.baseMs) / this.halfLifeMs)
    for (const account of this.joined) account.toolWeight *= factor
    this.baseMs = toMs
    this.decayMs = toMs
    this.decay = 1
  }

  private countShared(account: Account, holding: Holding, sign: 1 | -1): void {
    let prompt = account.shared.get(holding.group)
    if (prompt === undefined) {
      prompt = { tokens: holding.sharedTokens, holders: 0, computed: 0, running: 0 }
      account.shared.set(holding.group, prompt)
    }
    const before = promptUse(prompt)
    prompt.holders += sign
    if (holding.tokens > 0) prompt.computed += sign
    if (holding.state === 'running') prompt.running += sign
    const after = promptUse(prompt)
    account.referencedTokens += after.referenced - before.referenced
    account.cachedTokens += after.cached - before.cached
    account.firmTokens += after.committed - before.committed
    if (prompt.holders === 0) account.shared.delete(holding.group)
  }

  /** A group has one prompt an engine; a member with another length does not share it. */
  private sharedPart(account: Account, group: GroupId, promptTokens: number): number {
    if (!account.spec.prefixSharing) return 0
    const whole = Math.floor(promptTokens / account.spec.blockTokens) * account.spec.blockTokens
    const prompt = account.shared.get(group)
    return prompt === undefined || prompt.tokens === whole ? whole : 0
  }

  private account(engine: EngineId | EngineAccount): Account {
    // An account that was handed out is one of ours.
    if (typeof engine !== 'string') return engine as Account
    const account = this.accounts.get(engine)
    if (account === undefined) throw new RangeError(`engine ${engine} is not in the ledger`)
    return account
  }

  private required(trajectory: TrajectoryId): Writable<Holding> {
    const holding = this.byTrajectory.get(trajectory)
    if (holding === undefined) throw new RangeError(`${trajectory} is on no engine`)
    return holding
  }
}

/** Tokens in whole blocks; 0 for nothing. */
function roundUp(tokens: number, blockTokens: number): number {
  return tokens <= 0 ? 0 : Math.ceil(tokens / blockTokens) * blockTokens
}

function promptUse(prompt: SharedPrompt) {
  return {
    referenced: prompt.running > 0 ? prompt.tokens : 0,
    cached: prompt.running === 0 && prompt.computed > 0 ? prompt.tokens : 0,
    committed: prompt.holders > 0 ? prompt.tokens : 0,
  }
}
