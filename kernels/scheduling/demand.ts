/**
 * Estimates the demand for KV: how long trajectories become, and how many tokens each engine's trajectories will hold.
 *
 * in   trajectories that are asked for, grow and end        out  tokens, for a policy's view
 * By default demand is the expected peak of the tokens held at once (forecast.ts, lengthModel.ts). If the option
 * `quantile` is set, demand is the sum of the lengths that trajectories may reach (the ledger's commitments): for a
 * number, that quantile of the final length; for null, the upper bound.
 */
import type { GroupId, TrajectoryId } from '../../messages/ids'
import type { SchedulerOptions } from './contract'
import type { Member, StateView } from './engineState'
import { Forecast } from './forecast'
import { GroupLengths } from './groupLengths'
import type { EngineSpec } from './kvAccount'
import type { Ledger } from './ledger'
import { LengthModel } from './lengthModel'

export class Demand {
  readonly lengthModel = new LengthModel()
  /** true: demand is the expected peak; false: demand is the sum of commitments. */
  readonly forecasts: boolean
  /** Largest token budget after a prompt (bound minus prompt) of all trajectories seen so far. */
  private longestBudget = 1
  private readonly groupLengths: GroupLengths
  private readonly toolHalfLifeMs: number
  /**
   * Results of `Forecast.expected` for the member `expectedOf`, by the member's `ownOffset` on an engine: engines with
   * the same offset share a result.
   */
  private readonly expected = new Map<number, Float64Array>()
  private expectedOf: Member | null = null
  private turnsEnded = 0
  private livesEnded = 0

  constructor(
    private readonly ledger: Ledger,
    options: SchedulerOptions,
  ) {
    this.groupLengths = new GroupLengths(options)
    this.forecasts = options.quantile === undefined
    this.toolHalfLifeMs = options.toolHalfLifeMs ?? 10_000
  }

  newForecast(spec: EngineSpec): Forecast<Member> {
    return new Forecast<Member>(spec, this.lengthModel, this.toolHalfLifeMs, () => this.longestBudget)
  }

  /**
   * Number of begun trajectories that ended without failing, divided by the number of turns that ended; 0 before any
   * turn has ended.
   */
  get lastTurnShare(): number {
    return this.turnsEnded === 0 ? 0 : this.livesEnded / this.turnsEnded
  }

  /** Updates the length estimates with a member's present length. */
  learn({ group, trajectory, contextTokens, promptTokens, boundTokens }: Member): void {
    const budget = boundTokens - promptTokens
    this.longestBudget = Math.max(this.longestBudget, budget)
    this.groupLengths.observe(group, trajectory, contextTokens)
    this.lengthModel.observe(group, trajectory, (contextTokens - promptTokens) / Math.max(1, budget))
  }

  turnEnded(): void {
    this.turnsEnded++
  }

  /**
   * Records the end of a trajectory. @param counts false if the trajectory failed, so that its length is no evidence
   */
  trajectoryEnded(group: GroupId, trajectory: TrajectoryId, counts: boolean, hadBegun: boolean): void {
    this.groupLengths.finish(group, trajectory, counts)
    this.lengthModel.finish(trajectory, counts)
    if (counts && hadBegun) this.livesEnded++
  }

  /**
   * Returns the estimated final length of a trajectory in tokens: from the lengths of its group, or its upper bound.
   */
  needTokens({ group, trajectory, contextTokens, boundTokens }: Member): number {
    return this.groupLengths.estimate(group, trajectory, contextTokens, boundTokens)
  }

  demandTokens({ state, account }: StateView, nowMs: number): number {
    return this.forecasts ? state.forecast.peakTokens(nowMs) : this.ledger.committedTokens(account, nowMs)
  }

  demandTokensWith(engine: StateView, member: Member, nowMs: number): number {
    if (this.forecasts) {
      return engine.state.forecast.peakTokensWith(member, this.expectedTokens(engine, member), nowMs)
    }
    const { group, promptTokens } = member
    const added = this.ledger.addedTokens(engine.account, group, promptTokens, this.needTokens(member))
    return this.demandTokens(engine, nowMs) + added
  }

  heldTokensWith({ state, account }: StateView, member: Member, nowMs: number): number {
    if (this.forecasts) return state.forecast.heldTokensWith(member, nowMs)
    const isHere = member.engine === account.spec.engine
    const starts = isHere ? this.ledger.startTokens(member.trajectory, member.contextTokens) : 0
    return account.referencedTokens + starts + account.spec.blockTokens
  }

  /** Clears the cache of expected tokens, since the length model may have changed after the last decision. */
  beginDecision(): void {
    this.expectedOf = null
  }

  private expectedTokens({ state }: StateView, member: Member): Float64Array {
    if (this.expectedOf !== member) {
      this.expectedOf = member
      this.expected.clear()
    }
    const offset = state.forecast.ownOffset(member)
    let tokens = this.expected.get(offset)
    if (tokens === undefined) {
      tokens = state.forecast.expected(member)
      this.expected.set(offset, tokens)
    }
    return tokens
  }
}
