/**
 * Assembles a trajectory's training sequence from its facts, so that training uses exactly the tokens that were
 * sampled.
 *
 * in   the facts of a trajectory, in the log's order        out  tokens, mask, logprobs and policy versions, aligned
 * Invariant: no token is tokenised anew or guessed. Lengths that do not add up are an error, never repaired.
 */
import type { ContextAppended, PolicySegment, TrajectoryFact, TurnCompleted, TurnInterrupted } from '../messages/facts'
import type { TrajectoryId } from '../messages/ids'

/** Training sequence of a trajectory. All arrays have the length of `tokens`. */
export interface AssembledSequence {
  readonly trajectory: TrajectoryId
  readonly tokens: Int32Array
  /** 1 for tokens that the model sampled, 0 for prompt, template and tool tokens. */
  readonly mask: Uint8Array
  /** Natural log-probability under the engine's sampling distribution; 0 where the mask is 0. */
  readonly engineLogprobs: Float32Array
  /** Policy version that sampled the token; −1 where the mask is 0. */
  readonly versions: Int32Array
  readonly promptTokens: number
  readonly sampledTokens: number
  readonly turns: number
  /** Smallest policy version over sampled tokens, from which staleness is counted; null if nothing was sampled. */
  readonly oldestVersion: number | null
}

type Piece = TurnCompleted | TurnInterrupted

/**
 * Joins the prompt (mask 0), each turn's sampled tokens (mask 1; tokens of interrupted attempts first), and the tokens
 * appended between turns (mask 0).
 *
 * The first `rollout.requested` decides which trajectory is assembled. Ignores facts of other trajectories and other
 * types, and repeated facts: a second answer to one attempt, a second append to one turn. If the facts include
 * `turn.asked`, also ignores an answer to another attempt than the one asked last before it, and checks the asked
 * context length. The caller must leave out decisions of a former owner of the partition.
 * @throws RangeError that names the trajectory, the turn and the fault: lengths that do not add up, or facts out of
 * order; also if there is no `rollout.requested`
 */
export function assembleSequence(facts: Iterable<TrajectoryFact>): AssembledSequence {
  let builder: Builder | undefined
  for (const fact of facts) {
    if (fact.type === 'rollout.requested') {
      if (builder === undefined) builder = new Builder(fact.trajectory, fact.tokens)
    } else if (builder !== undefined && 'trajectory' in fact && fact.trajectory === builder.trajectory) {
      switch (fact.type) {
        case 'turn.asked':
          builder.ask(fact.turn, fact.attempt, fact.contextTokens)
          break
        case 'turn.interrupted':
        case 'turn.completed':
          builder.answer(fact)
          break
        case 'context.appended':
          builder.append(fact)
          break
      }
    }
  }
  if (builder === undefined)
    throw new RangeError(
      'cannot assemble a training sequence: the facts have no rollout.requested, so the prompt is unknown',
    )
  return builder.build()
}

interface Part {
  readonly tokens: Int32Array
  /** `turn.completed` or `turn.interrupted` that holds these tokens; null for tokens that were not sampled. */
  readonly sampled: Piece | null
  /** Number of tokens that earlier attempts of the same turn sampled; 0 for tokens that were not sampled. */
  readonly offset: number
}

class Builder {
  private readonly parts: Part[]
  private length: number
  private turn = 0
  private turnTokens = 0
  /**
   * Phase of the present turn. open: it is being generated. done: it is completed. appended: its tool responses are
   * appended.
   */
  private phase: 'open' | 'done' | 'appended' = 'open'
  private askedAttempt: number | null = null
  private readonly answered = new Set<string>()

  constructor(
    readonly trajectory: TrajectoryId,
    private readonly prompt: Int32Array,
  ) {
    this.parts = [{ tokens: prompt, sampled: null, offset: 0 }]
    this.length = prompt.length
  }

  ask(turn: number, attempt: number, contextTokens: number): void {
    if (turn < this.turn || (turn === this.turn && this.phase !== 'open')) return
    if (turn === this.turn && this.askedAttempt !== null && attempt <= this.askedAttempt) return
    this.enter(turn)
    this.askedAttempt = attempt
    if (contextTokens !== this.length) {
      this.fail(
        turn,
        `attempt ${attempt} was asked with ${contextTokens} tokens of context, the facts hold ${this.length}`,
      )
    }
  }

  answer(piece: Piece): void {
    const id = `${piece.turn}/${piece.attempt}`
    if (this.answered.has(id) || piece.turn < this.turn) return
    if (piece.turn === this.turn) {
      if (this.phase !== 'open') return
      if (this.askedAttempt !== null && piece.attempt !== this.askedAttempt) return
    }
    this.enter(piece.turn)
    if (piece.logprobs.length !== piece.tokens.length) {
      this.fail(piece.turn, `the fact has ${piece.tokens.length} tokens but ${piece.logprobs.length} logprobs`)
    }
    this.answered.add(id)
    this.parts.push({ tokens: piece.tokens, sampled: piece, offset: this.turnTokens })
    this.length += piece.tokens.length
    this.turnTokens += piece.tokens.length
    if (piece.type === 'turn.completed') this.phase = 'done'
  }

  append(fact: ContextAppended): void {
    if (fact.turn < this.turn || (fact.turn === this.turn && this.phase === 'appended')) return
    if (fact.turn !== this.turn || this.phase !== 'done') {
      this.fail(fact.turn, 'context was appended before the turn was completed')
    }
    this.phase = 'appended'
    this.parts.push({ tokens: fact.tokens, sampled: null, offset: 0 })
    this.length += fact.tokens.length
  }

  build(): AssembledSequence {
    const tokens = new Int32Array(this.length)
    const mask = new Uint8Array(this.length)
    const engineLogprobs = new Float32Array(this.length)
    const versions = new Int32Array(this.length).fill(-1)
    let at = 0
    let sampledTokens = 0
    let oldestVersion: number | null = null
    for (const part of this.parts) {
      tokens.set(part.tokens, at)
      if (part.sampled !== null) {
        mask.fill(1, at, at + part.tokens.length)
        engineLogprobs.set(part.sampled.logprobs, at)
        for (const { policyVersion, start, end } of this.segments(part.sampled, part.offset)) {
          versions.fill(policyVersion, at + start, at + end)
          if (end > start && (oldestVersion === null || policyVersion < oldestVersion)) oldestVersion = policyVersion
        }
        sampledTokens += part.tokens.length
      }
      at += part.tokens.length
    }
    const turns = new Set(this.parts.flatMap(part => (part.sampled === null ? [] : [part.sampled.turn]))).size
    const promptTokens = this.prompt.length
    const { trajectory } = this
    return { trajectory, tokens, mask, engineLogprobs, versions, promptTokens, sampledTokens, turns, oldestVersion }
  }

  /**
   * Returns the policy segments of a fact, counted from the fact's first token. In the fact, segments of a resumed turn
   * may count from the turn's first token.
   */
  private segments(piece: Piece, offset: number): readonly PolicySegment[] {
    const filled = piece.segments.filter(segment => segment.end > segment.start)
    const shift = filled[0]?.start === offset ? offset : 0
    let next = shift
    for (const segment of filled) {
      if (segment.start !== next) break
      next = segment.end
    }
    const last = filled[filled.length - 1]?.end ?? shift
    if (next - shift !== piece.tokens.length || last !== next) {
      const listed = piece.segments.map(({ start, end }) => `${start}-${end}`).join(', ')
      this.fail(piece.turn, `the policy segments ${listed || '(none)'} do not cover ${piece.tokens.length} tokens`)
    }
    return filled.map(({ policyVersion, start, end }) => ({ policyVersion, start: start - shift, end: end - shift }))
  }

  private enter(turn: number): void {
    if (turn === this.turn && this.phase === 'open') return
    if (turn !== this.turn + 1 || this.phase !== 'appended') {
      this.fail(
        turn,
        `the fact follows turn ${this.turn}, ${this.phase === 'open' ? 'which is not completed' : 'without context between them'}`,
      )
    }
    this.turn = turn
    this.turnTokens = 0
    this.phase = 'open'
    this.askedAttempt = null
  }

  private fail(turn: number, problem: string): never {
    throw new RangeError(`trajectory ${this.trajectory}, turn ${turn}: ${problem}`)
  }
}
