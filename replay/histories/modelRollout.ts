/**
 * Sequential model of one rollout: which of its facts count by the rules of the protocol, and which were ignored.
 *
 * in   the facts of one trajectory that no claim has fenced off, in the log's order
 * out  for each fact: whether it counts
 * It is written from the rules and not from the coordinator's code, so that an error in one of the two shows. Rules: a
 * turn is asked before it is answered, and attempts grow; an answer counts once, for the attempt asked last; tool
 * results are appended after every call of the turn has its answer; after the end only a reward counts.
 */
import { parseToolCalls, resolveCalls } from '../../kernels'
import type { Fact, RolloutRequested, ToolCompleted, TurnCompleted, TurnInterrupted } from '../../messages/facts'

/**
 * Number of interrupted attempts in a row without a token after which a rollout fails. An aborted attempt, or one with
 * tokens, sets the count back to 0.
 */
const mostFaults = 5

interface ModelCall {
  readonly isReady: boolean
  attempt: number
  isAnswered: boolean
}

export class ModelRollout {
  turn = 0
  /** Number of tokens in the context of the next generation, those that interrupted attempts sampled included. */
  tokens: number
  /** Number of turns with a `turn.completed` that counts. */
  completions = 0
  isFinished = false
  hasFailed = false
  /** True once the verifier's answer counted. */
  isJudged = false
  hasReward = false
  /** True once an agent's session was opened: the rollout's turns are then those of its calls. */
  isLed = false
  /**
   * Position of the latest ignored fact of each kind, by type, turn and call, such as `turn.completed#2`; `reward` for
   * rewards.
   */
  readonly ignored = new Map<string, string>()
  private phase: 'turn' | 'tools' | 'append' | 'ended' = 'turn'
  private attempt = -1
  private isOpen = false
  private faults = 0
  private calls: ModelCall[] = []

  constructor(private readonly request: RolloutRequested) {
    this.tokens = request.tokens.length
  }

  get isAnswered(): boolean {
    return this.phase !== 'turn'
  }

  get isAppendable(): boolean {
    return this.phase === 'append' || this.phase === 'ended'
  }

  /** Applies a fact; returns true if it counts. */
  take(fact: Fact): boolean {
    if (this.isFinished) return false
    switch (fact.type) {
      case 'turn.asked':
        if (this.phase !== 'turn' || fact.turn !== this.turn || fact.attempt <= this.attempt) return false
        this.attempt = fact.attempt
        this.isOpen = true
        return true
      case 'turn.interrupted':
      case 'turn.completed':
        if (!this.isOpen || fact.turn !== this.turn || fact.attempt !== this.attempt) return false
        this.isOpen = false
        this.tokens += fact.tokens.length
        if (fact.type === 'turn.completed') this.completed(fact)
        else this.interrupted(fact)
        return true
      case 'tool.asked': {
        const call = this.calls[fact.call]
        const isDue = this.phase === 'tools' && fact.turn === this.turn && call?.isAnswered === false
        if (!isDue || fact.attempt <= call.attempt) return false
        call.attempt = fact.attempt
        return true
      }
      case 'tool.completed':
        return this.answered(fact)
      case 'context.appended':
        if (this.phase !== 'append' || fact.turn !== this.turn) return false
        this.turn++
        this.attempt = -1
        this.calls = []
        this.tokens += fact.tokens.length
        this.phase = this.room() < 1 ? 'ended' : 'turn'
        return true
      case 'rollout.finished':
        this.isFinished = true
        this.hasFailed = fact.outcome === 'failed'
        return true
      default:
        return false
    }
  }

  /** Ends the rollout because its group has closed: from now on only `rollout.finished` and its reward count. */
  close(): void {
    if (!this.isFinished) this.end()
  }

  private end(): void {
    this.phase = 'ended'
    this.isOpen = false
  }

  private interrupted({ reason, tokens }: TurnInterrupted): void {
    this.faults = reason !== 'aborted' && tokens.length === 0 ? this.faults + 1 : 0
    if (reason === 'too-long' || reason === 'not-recorded' || this.faults >= mostFaults) this.end()
  }

  private completed({ text, finish }: TurnCompleted): void {
    const { tools, limits } = this.request
    this.faults = 0
    this.completions++
    this.end()
    if (finish === 'length' || this.turn + 1 >= limits.turns) return
    const { calls } = parseToolCalls(text)
    if (calls.length === 0) return
    this.calls = resolveCalls(calls, tools, limits.callsPerTurn).resolved.map(({ kind }) => ({
      ...{ isReady: kind === 'ready', attempt: -1, isAnswered: false },
    }))
    this.phase = 'tools'
  }

  private answered(fact: ToolCompleted): boolean {
    const call = this.calls[fact.call]
    if (this.phase !== 'tools' || fact.turn !== this.turn || call?.isAnswered !== false) return false
    if (call.isReady && fact.attempt !== call.attempt) return false
    call.isAnswered = true
    if (this.calls.every(({ isAnswered }) => isAnswered)) this.phase = 'append'
    return true
  }

  private room(): number {
    const { limits, tokens } = this.request
    return Math.min(limits.contextTokens - this.tokens, limits.responseTokens - (this.tokens - tokens.length))
  }
}
