/**
 * Accounts for the KV cache of one engine: the sums over all trajectories that it holds.
 *
 * in   holdings that are added and subtracted, reports of the engine        out  tokens referenced, cached, committed
 * referenced: blocks of trajectories that are generating. cached: blocks kept between turns, evictable. committed: tokens
 * that the placed trajectories are expected to need in total.
 * A group's prompt counts once if the engine shares prefixes, rounded down to whole blocks; the rest of each trajectory is
 * rounded up to blocks.
 * Invariant: every sum equals a recount over the holdings, and none is negative. Each operation is O(1), but `correct`,
 * which is O(groups on the engine).
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
  /** Sign from the engine's capabilities; 0 if a request's priority does not choose the victim of a preemption. */
  readonly prioritySign: -1 | 0 | 1
}

/** waiting: placed, its next turn has not started. running: generating. tool: between two turns. */
export type HoldingState = 'waiting' | 'running' | 'tool'

export interface Holding {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  readonly engine: EngineId
  readonly state: HoldingState
  /** Tokens of the trajectory that the engine has computed, as far as known; 0 before its first turn there. */
  readonly tokens: number
  /** Tokens that the trajectory is expected to need in total. */
  readonly needTokens: number
  /** The trajectory's part of the group's shared prompt: whole blocks; 0 without sharing. */
  readonly sharedTokens: number
  /** Time at which its tool call began. */
  readonly sinceMs: number
}

/** Sums of one engine, in tokens and in trajectories. */
export interface EngineAccount {
  readonly spec: EngineSpec
  readonly referencedTokens: number
  readonly cachedTokens: number
  readonly running: number
  readonly waiting: number
  readonly inTool: number
  /** Referenced tokens in the engine's last report minus the account's at that time: the account's error. */
  readonly driftTokens: number
  /** Tokens in the last report beyond all that running trajectories may grow to: requests of other clients. */
  readonly foreignTokens: number
}

/** The part of an engine's status that corrects its account. */
export interface KvReport {
  readonly kvTokens: number
  readonly referencedTokens: number
}

interface SharedPrompt {
  readonly tokens: number
  holders: number
  /** Holders whose tokens are computed, and those of them that generate. */
  computed: number
  running: number
}

export class KvAccount implements EngineAccount {
  referencedTokens = 0
  cachedTokens = 0
  running = 0
  waiting = 0
  inTool = 0
  driftTokens = 0
  foreignTokens = 0
  /** Commitments of waiting and running trajectories, and of shared prompts. */
  firmTokens = 0
  /** Commitments of trajectories in a tool, weighted by the ledger's decay. */
  toolWeight = 0
  /** Commitments of the running trajectories alone. */
  #runningNeedTokens = 0
  readonly #prompts = new Map<GroupId, SharedPrompt>()

  /** @throws RangeError on a size that is not positive */
  constructor(public spec: EngineSpec) {
    for (const name of ['kvTokens', 'blockTokens', 'maxSequences', 'contextTokens'] as const) {
      if (!(spec[name] > 0))
        throw new RangeError(`engine ${spec.engine}: ${name} is ${spec[name]}, expected more than 0`)
    }
  }

  /**
   * Adds (sign 1) or subtracts (−1) all that a holding contributes.
   * @param decay weight of its commitment while it is in a tool
   */
  count(holding: Holding, sign: 1 | -1, decay: number): void {
    const { blockTokens } = this.spec
    const own = holding.tokens > 0 ? roundUp(holding.tokens - holding.sharedTokens, blockTokens) : 0
    const need = roundUp(Math.max(holding.needTokens, holding.tokens) - holding.sharedTokens, blockTokens)
    if (holding.state === 'running') {
      this.running += sign
      this.referencedTokens += sign * own
      this.#runningNeedTokens += sign * need
    } else this.cachedTokens += sign * own
    if (holding.state === 'tool') {
      this.inTool += sign
      // Rounding errors end with the last trajectory in a tool.
      this.toolWeight = this.inTool === 0 ? 0 : this.toolWeight + sign * need * decay
    } else this.firmTokens += sign * need
    if (holding.state === 'waiting') this.waiting += sign
    if (holding.sharedTokens > 0) this.#countShared(holding, sign)
  }

  /** Returns a member's part of the group's prompt. A group has one prompt per engine; a prompt of another length is not shared. */
  sharedPart(group: GroupId, promptTokens: number): number {
    if (!this.spec.prefixSharing) return 0
    const whole = Math.floor(promptTokens / this.spec.blockTokens) * this.spec.blockTokens
    const prompt = this.#prompts.get(group)
    return prompt === undefined || prompt.tokens === whole ? whole : 0
  }

  /** Returns what placing one more trajectory would add to the commitments: less if the group's prompt is there already. */
  addedTokens(group: GroupId, promptTokens: number, needTokens: number): number {
    const shared = this.sharedPart(group, promptTokens)
    const isThere = shared > 0 && this.#prompts.has(group)
    return roundUp(needTokens - shared, this.spec.blockTokens) + (isThere ? 0 : shared)
  }

  /** Returns what starting a turn with a context of `tokens` would add to `referencedTokens`. */
  startTokens({ group, sharedTokens }: Holding, tokens: number): number {
    const prompt = this.#prompts.get(group)
    const isReferenced = sharedTokens > 0 && prompt !== undefined && prompt.running > 0
    return roundUp(tokens - sharedTokens, this.spec.blockTokens) + (isReferenced ? 0 : sharedTokens)
  }

  /** Applies an engine's report in place of the report before. Ignores a report with negative or non-finite numbers. */
  correct(report: KvReport): void {
    // A comparison with NaN is always false: no engine would ever be full.
    if (![report.kvTokens, report.referencedTokens].every(tokens => Number.isFinite(tokens) && tokens >= 0)) return
    if (report.kvTokens > 0 && report.kvTokens !== this.spec.kvTokens) {
      this.spec = { ...this.spec, kvTokens: report.kvTokens }
    }
    this.driftTokens = report.referencedTokens - this.referencedTokens
    let mayGrowTo = this.#runningNeedTokens
    for (const prompt of this.#prompts.values()) if (prompt.running > 0) mayGrowTo += prompt.tokens
    this.foreignTokens = Math.max(0, report.referencedTokens - Math.max(mayGrowTo, this.referencedTokens))
  }

  #countShared(holding: Holding, sign: 1 | -1): void {
    let prompt = this.#prompts.get(holding.group)
    if (prompt === undefined) {
      prompt = { tokens: holding.sharedTokens, holders: 0, computed: 0, running: 0 }
      this.#prompts.set(holding.group, prompt)
    }
    const before = promptUse(prompt)
    prompt.holders += sign
    if (holding.tokens > 0) prompt.computed += sign
    if (holding.state === 'running') prompt.running += sign
    const after = promptUse(prompt)
    this.referencedTokens += after.referenced - before.referenced
    this.cachedTokens += after.cached - before.cached
    this.firmTokens += after.committed - before.committed
    if (prompt.holders === 0) this.#prompts.delete(holding.group)
  }
}

/** Rounds tokens up to whole blocks; 0 for nothing. */
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
