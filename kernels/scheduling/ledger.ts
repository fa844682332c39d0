/**
 * Keeps a ledger of KV caches: which trajectory is on which engine, and an account per engine (kvAccount.ts).
 *
 * in   engines that join, leave and report; trajectories that are placed, run, wait for a tool and are released
 * out  the holding of each trajectory (its tokens and state on its engine), and sums per engine, always up to date
 * The committed tokens (expected need) of a trajectory in a tool halve every `toolHalfLifeMs`, since its KV may be
 * evicted.
 * Invariant: pure except for its own state: no clock, no randomness; times are arguments, in ms on one clock, whose
 * origin does not matter. Each operation on a trajectory is O(1) amortised; `leave` is O(holdings of all
 * engines), `correct` (comparison with an engine's report) O(groups on the engine).
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'
import { type EngineAccount, type EngineSpec, type Holding, KvAccount, type KvReport } from './kvAccount'

export interface LedgerOptions {
  /** Milliseconds in which the committed tokens of a trajectory in a tool halve. Default 10 s; Infinity: no decay. */
  readonly toolHalfLifeMs?: number
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

export class Ledger {
  private readonly accounts = new Map<EngineId, KvAccount>()
  private readonly byTrajectory = new Map<TrajectoryId, Writable<Holding>>()
  private readonly halfLifeMs: number
  private joined: readonly KvAccount[] = []
  /**
   * Time to which the weights of trajectories in tools (`toolWeight`) refer, ms. All engines share it, so that a
   * decision computes one power instead of one per engine.
   */
  private baseMs = 0
  /**
   * Time for which `decay` was computed, ms. `decay` is the factor by which the weights of trajectories in tools have
   * decayed since `baseMs`.
   */
  private decayMs = 0
  private decay = 1

  constructor(options: LedgerOptions = {}) {
    this.halfLifeMs = options.toolHalfLifeMs ?? 10_000
    if (!(this.halfLifeMs > 0)) throw new RangeError(`toolHalfLifeMs is ${this.halfLifeMs}, expected more than 0`)
  }

  /** Accounts of the joined engines, in the order in which they joined. */
  get engines(): readonly EngineAccount[] {
    return this.joined
  }

  engine(engine: EngineId): EngineAccount | undefined {
    return this.accounts.get(engine)
  }

  holding(trajectory: TrajectoryId): Holding | undefined {
    return this.byTrajectory.get(trajectory)
  }

  /**
   * Adds an engine. @throws RangeError if the engine has joined already, or if kvTokens, blockTokens, maxSequences or
   * contextTokens of `spec` is not above 0
   */
  join(spec: EngineSpec): void {
    if (this.accounts.has(spec.engine)) throw new RangeError(`engine ${spec.engine} has joined already`)
    this.accounts.set(spec.engine, new KvAccount(spec))
    this.joined = [...this.accounts.values()]
  }

  /** Removes an engine and its holdings, and returns the trajectories that it held. O(holdings of all engines). */
  leave(engine: EngineId): readonly TrajectoryId[] {
    if (!this.accounts.delete(engine)) return []
    this.joined = [...this.accounts.values()]
    const lost = [...this.byTrajectory.values()].filter(one => one.engine === engine).map(one => one.trajectory)
    for (const trajectory of lost) this.byTrajectory.delete(trajectory)
    return lost
  }

  /**
   * Places a trajectory on an engine, where it waits. It holds no tokens until it runs, unless `heldTokens` is given.
   */
  admit(placed: {
    readonly trajectory: TrajectoryId
    readonly group: GroupId
    readonly engine: EngineId
    readonly promptTokens: number
    readonly needTokens: number
    readonly heldTokens?: number
  }): void {
    const present = this.byTrajectory.get(placed.trajectory)
    if (present !== undefined)
      throw new RangeError(
        `cannot place ${placed.trajectory} on engine ${placed.engine}: it is on engine ${present.engine} already`,
      )
    const account = this.account(placed.engine)
    const holding: Writable<Holding> = {
      trajectory: placed.trajectory,
      group: placed.group,
      engine: placed.engine,
      state: 'waiting',
      tokens: placed.heldTokens ?? 0,
      needTokens: placed.needTokens,
      sharedTokens: account.sharedPart(placed.group, placed.promptTokens),
      sinceMs: 0,
    }
    this.byTrajectory.set(placed.trajectory, holding)
    this.count(account, holding, 1)
  }

  /** Records that a turn starts with a context of `tokens`. */
  run(trajectory: TrajectoryId, tokens: number): void {
    this.change(trajectory, { state: 'running', tokens })
  }

  /** Records a trajectory's new length, or a new expectation of its total tokens. */
  grow(trajectory: TrajectoryId, known: { readonly tokens?: number; readonly needTokens?: number }): void {
    this.change(trajectory, known)
  }

  /** Records that a turn ended with a context of `tokens`, and that the trajectory entered its tool at `nowMs`. */
  toTool(trajectory: TrajectoryId, tokens: number, nowMs: number): void {
    this.change(trajectory, { state: 'tool', tokens, sinceMs: nowMs })
  }

  /** Records that the trajectory is back from its tool and waits for its next turn. */
  return(trajectory: TrajectoryId, needTokens: number): void {
    this.change(trajectory, { state: 'waiting', needTokens })
  }

  /** Removes a trajectory from its engine. Ignores an unknown one, since releases are delivered at least once. */
  release(trajectory: TrajectoryId): void {
    const holding = this.byTrajectory.get(trajectory)
    if (holding === undefined) return
    this.byTrajectory.delete(trajectory)
    this.count(this.account(holding.engine), holding, -1)
  }

  /** Compares an engine's account with the engine's status report: sets its drift, foreign tokens and capacity. */
  correct(engine: EngineId, report: KvReport): void {
    this.account(engine).correct(report)
  }

  /**
   * Returns the tokens that an engine's placed trajectories are expected to need in total; those of trajectories in a
   * tool are decayed to `nowMs`.
   */
  committedTokens(engine: EngineId | EngineAccount, nowMs: number): number {
    const account = this.account(engine)
    if (account.inTool === 0) return account.firmTokens
    if (this.decayMs !== nowMs) {
      this.decayMs = nowMs
      this.decay = 2 ** (-(nowMs - this.baseMs) / this.halfLifeMs)
    }
    return account.firmTokens + Math.max(0, account.toolWeight * this.decay)
  }

  /** Returns the tokens that one more trajectory would add to `committedTokens`. */
  addedTokens(engine: EngineId | EngineAccount, group: GroupId, promptTokens: number, needTokens: number): number {
    return this.account(engine).addedTokens(group, promptTokens, needTokens)
  }

  /** Returns the tokens that a turn with a context of `tokens` would add to `referencedTokens`. */
  startTokens(trajectory: TrajectoryId, tokens: number): number {
    const holding = this.required(trajectory)
    return this.account(holding.engine).startTokens(holding, tokens)
  }

  private change(trajectory: TrajectoryId, to: Partial<Writable<Holding>>): void {
    const holding = this.required(trajectory)
    const account = this.account(holding.engine)
    this.count(account, holding, -1)
    Object.assign(holding, to)
    this.count(account, holding, 1)
  }

  private count(account: KvAccount, holding: Holding, sign: 1 | -1): void {
    account.count(holding, sign, holding.state === 'tool' ? this.weightSince(holding.sinceMs) : 1)
  }

  private weightSince(sinceMs: number): number {
    if ((sinceMs - this.baseMs) / this.halfLifeMs > 500) this.rebase(sinceMs)
    return 2 ** ((sinceMs - this.baseMs) / this.halfLifeMs)
  }

  /** Moves the reference time `baseMs`: far from it, weights would leave the range of a double. */
  private rebase(toMs: number): void {
    const factor = 2 ** (-(toMs - this.baseMs) / this.halfLifeMs)
    for (const account of this.joined) account.toolWeight *= factor
    this.baseMs = toMs
    this.decayMs = toMs
    this.decay = 1
  }

  private account(engine: EngineId | EngineAccount): KvAccount {
    // The cast is safe: this ledger made every EngineAccount that callers have, as a KvAccount.
    if (typeof engine !== 'string') return engine as KvAccount
    const account = this.accounts.get(engine)
    if (account === undefined) throw new RangeError(`engine ${engine} has not joined the ledger`)
    return account
  }

  private required(trajectory: TrajectoryId): Writable<Holding> {
    const holding = this.byTrajectory.get(trajectory)
    if (holding === undefined) throw new RangeError(`trajectory ${trajectory} is on no engine of the ledger`)
    return holding
  }
}
