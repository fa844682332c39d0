/**
 * Accounts for the KV cache of one engine: the sums over all trajectories that it holds.
 *
 * in   holdings (one trajectory's tokens and state on the engine) that are added and subtracted, reports of the engine
 * out  tokens referenced, cached, committed
 * referenced: blocks of trajectories that are generating. cached: blocks kept between turns, evictable. committed:
 * tokens that the placed trajectories are expected to need in total. A group's prompt counts once if the engine shares
 * prefixes, rounded down to whole blocks; the rest of each trajectory is rounded up to whole blocks.
 * Invariant: every sum equals a recount over the holdings, and none is negative (`toolWeight`: apart from rounding
 * errors). Each operation is O(1), except `correct`, which is O(groups on the engine).
 */
import type { EngineId, GroupId, TrajectoryId } from '../../messages/ids'

export interface EngineSpec {
  readonly engine: EngineId
  readonly kvTokens: number
  readonly blockTokens: number
  readonly maxSequences: number
  /** Longest context that the engine accepts, in tokens. */
  readonly contextTokens: number
  /** true: the engine keeps one copy of a prompt for all members of a group. */
  readonly prefixSharing: boolean
  /** Priority value that the engine preempts first: -1 the largest, 1 the smallest; 0: priority does not matter. */
  readonly prioritySign: -1 | 0 | 1
}

/**
 * State of a trajectory on its engine. waiting: placed, its next turn has not started. running: generating. tool:
 * between two turns.
 */
export type HoldingState = 'waiting' | 'running' | 'tool'

export interface Holding {
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  readonly engine: EngineId
  readonly state: HoldingState
  /**
   * Number of the trajectory's tokens that the engine has computed, as far as known; 0 before its first turn on the
   * engine.
   */
  readonly tokens: number
  /** Number of tokens that the trajectory is expected to need in total. */
  readonly needTokens: number
  /**
   * Tokens of the group's prompt that the trajectory shares: whole blocks; 0 if the engine does not share prefixes, or
   * shares a prompt of another length in this group.
   */
  readonly sharedTokens: number
  /** Time at which the trajectory's latest tool call began, ms; 0 before the first one on this engine. */
  readonly sinceMs: number
}

/** Account of one engine: sums over the trajectories placed on it, as tokens or as numbers of trajectories. */
export interface EngineAccount {
  readonly spec: EngineSpec
  readonly referencedTokens: number
  readonly cachedTokens: number
  readonly running: number
  readonly waiting: number
  readonly inTool: number
  /**
   * Referenced tokens in the engine's last report minus the referenced tokens of this account at that time: the
   * account's error.
   */
  readonly driftTokens: number
  /**
   * Referenced tokens in the engine's last report beyond the lengths that its running trajectories are expected to
   * reach: they must belong to requests of other clients.
   */
  readonly foreignTokens: number
}

/** Part of an engine's status report that the account is compared with. */
export interface KvReport {
  readonly kvTokens: number
  readonly referencedTokens: number
}

interface SharedPrompt {
  readonly tokens: number
  holders: number
  /**
   * `holders` counts the trajectories that share the prompt, `computed` those of them with computed tokens, `running`
   * those of them that generate.
   */
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
  /** Committed tokens of waiting and running trajectories, and of shared prompts. */
  firmTokens = 0
  /**
   * Committed tokens of trajectories in a tool, each times 2 ** ((the time its tool began − the ledger's `baseMs`) /
   * half-life).
   */
  toolWeight = 0
  /** Committed tokens of the running trajectories only. */
  #runningNeedTokens = 0
  readonly #prompts = new Map<GroupId, SharedPrompt>()

  /**
   * Opens the account of an engine that holds nothing yet. @throws RangeError if kvTokens, blockTokens, maxSequences or
   * contextTokens of `spec` is not above 0
   */
  constructor(public spec: EngineSpec) {
    for (const name of ['kvTokens', 'blockTokens', 'maxSequences', 'contextTokens'] as const) {
      if (!(spec[name] > 0))
        throw new RangeError(`engine ${spec.engine}: ${name} is ${spec[name]}, expected more than 0`)
    }
  }

  /**
   * Adds a holding (one trajectory on this engine) to all sums (sign 1), or subtracts it from them (sign −1).
   * @param decay weight of the holding's commitment while its trajectory is in a tool
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
      // Resets accumulated rounding errors when the last trajectory leaves its tool.
      this.toolWeight = this.inTool === 0 ? 0 : this.toolWeight + sign * need * decay
    } else this.firmTokens += sign * need
    if (holding.state === 'waiting') this.waiting += sign
    if (holding.sharedTokens > 0) this.#countShared(holding, sign)
  }

  /**
   * Returns the tokens of a prompt that a group's members share. A group has one prompt per engine; a prompt of another
   * length is not shared.
   */
  sharedPart(group: GroupId, promptTokens: number): number {
    if (!this.spec.prefixSharing) return 0
    const whole = Math.floor(promptTokens / this.spec.blockTokens) * this.spec.blockTokens
    const prompt = this.#prompts.get(group)
    return prompt === undefined || prompt.tokens === whole ? whole : 0
  }

  /**
   * Returns the committed tokens that one more trajectory would add: fewer if the group's prompt is on the engine
   * already.
   */
  addedTokens(group: GroupId, promptTokens: number, needTokens: number): number {
    const shared = this.sharedPart(group, promptTokens)
    const isThere = shared > 0 && this.#prompts.has(group)
    return roundUp(needTokens - shared, this.spec.blockTokens) + (isThere ? 0 : shared)
  }

  /** Returns the tokens that a turn with a context of `tokens` would add to `referencedTokens`. */
  startTokens({ group, sharedTokens }: Holding, tokens: number): number {
    const prompt = this.#prompts.get(group)
    const isReferenced = sharedTokens > 0 && prompt !== undefined && prompt.running > 0
    return roundUp(tokens - sharedTokens, this.spec.blockTokens) + (isReferenced ? 0 : sharedTokens)
  }

  /**
   * Computes `driftTokens` and `foreignTokens` from a status report of the engine, and takes its capacity from it
   * unless that is 0. Ignores a report with negative or non-finite numbers.
   */
  correct(report: KvReport): void {
    // A NaN in the report would make every comparison false, and the engine would never count as full.
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

/** Rounds tokens up to whole blocks; 0 for 0 or fewer tokens. */
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
