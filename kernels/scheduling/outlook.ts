/**
 * What a scheduler expects of its trajectories: how long they become, and what they will hold of each engine's KV.
 *
 * in   trajectories as they are asked for, grow and end        out  tokens, as a policy's view gives them
 * Two ways, by the options: by default what is expected to be held at once (forecast.ts, lengthModel.ts); where a quantile
 * is given, or null for the bound, the sum of what each may grow to, as the ledger has it.
 */
import type { GroupId, TrajectoryId } from '../../messages/ids'
import type { SchedulerOptions } from './contract'
import { Forecast } from './forecast'
import { GroupLengths } from './groupLengths'
import type { EngineSpec, Ledger } from './ledger'
import { LengthModel } from './lengthModel'
import type { Member, Seen } from './seat'

export class Outlook {
  readonly lives = new LengthModel()
  readonly forecasts: boolean
  /** The longest budget after a prompt that was asked for, tokens. */
  longestBudget = 1
  private readonly lengths: GroupLengths
  private readonly toolHalfLifeMs: number
  /** What the trajectory that engines are being looked at for is expected to hold: by what of it would be its own there. */
  private readonly expected = new Map<number, Float64Array>()
  private expectedOf: Member | null = null
  private turnsEnded = 0
  private livesEnded = 0

  constructor(
    private readonly ledger: Ledger,
    options: SchedulerOptions,
  ) {
    this.lengths = new GroupLengths(options)
    this.forecasts = options.quantile === undefined
    this.toolHalfLifeMs = options.toolHalfLifeMs ?? 10_000
  }

  newForecast(spec: EngineSpec): Forecast<Member> {
    return new Forecast<Member>(spec, this.lives, this.toolHalfLifeMs, () => this.longestBudget)
  }

  /** Of the turns that have ended, the share that was the last of its trajectory. */
  get lastTurnShare(): number {
    return this.turnsEnded === 0 ? 0 : this.livesEnded / this.turnsEnded
  }

  /** Its length, as it stands in the member, is known. */
  learn({ group, trajectory, contextTokens, promptTokens, boundTokens }: Member): void {
    const budget = boundTokens - promptTokens
    this.longestBudget = Math.max(this.longestBudget, budget)
    this.lengths.observe(group, trajectory, contextTokens)
    this.lives.observe(group, trajectory, (contextTokens - promptTokens) / Math.max(1, budget))
  }

  turnEnded(): void {
    this.turnsEnded++
  }

  lifeEnded(group: GroupId, trajectory: TrajectoryId, counts: boolean, hadBegun: boolean): void {
    this.lengths.finish(group, trajectory, counts)
    this.lives.finish(trajectory, counts)
    if (counts && hadBegun) this.livesEnded++
  }

  /** What a trajectory may grow to in all, by its group's lengths or its bound. */
  needTokens({ group, trajectory, contextTokens, boundTokens }: Member): number {
    return this.lengths.estimate(group, trajectory, contextTokens, boundTokens)
  }

  demandTokens({ seat, account }: Seen, nowMs: number): number {
    return this.forecasts ? seat.forecast.peakTokens(nowMs) : this.ledger.committedTokens(account, nowMs)
  }

  demandTokensWith(engine: Seen, member: Member, nowMs: number): number {
    if (this.forecasts) {
      return engine.seat.forecast.peakTokensWith(member, this.expectedTokens(engine, member), nowMs)
    }
    const { group, promptTokens } = member
    const added = this.ledger.addedTokens(engine.account, group, promptTokens, this.needTokens(member))
    return this.demandTokens(engine, nowMs) + added
  }

  heldTokensWith({ seat, account }: Seen, member: Member, nowMs: number): number {
    if (this.forecasts) return seat.forecast.heldTokensWith(member, nowMs)
    const isHere = member.engine === account.spec.engine
    const starts = isHere ? this.ledger.startTokens(member.trajectory, member.contextTokens) : 0
    return account.referencedTokens + starts + account.spec.blockTokens
  }

  /** Lengths may have been learnt since the last decision. */
  decides(): void {
    this.expectedOf = null
  }

  private expectedTokens({ seat }: Seen, member: Member): Float64Array {
    if (this.expectedOf !== member) {
      this.expectedOf = member
      this.expected.clear()
    }
    const kind = seat.forecast.ownLess(member)
    let tokens = this.expected.get(kind)
    if (tokens === undefined) {
      tokens = seat.forecast.expected(member)
      this.expected.set(kind, tokens)
    }
    return tokens
  }
}
