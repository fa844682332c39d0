/**
 * Defines a turn on a simulated engine: the request, its progress (a sequence), and a batch of sequences.
 *
 * A sequence's `computed` counts tokens whose keys and values are cached. The last sampled token is computed a step
 * later.
 */
import type { Hold } from './kvCache'

/**
 * Longest context of a trajectory that any engine has computed, in tokens. Tokens of it that are computed again are the
 * cost of preemption and eviction.
 */
export interface History {
  computedTokens: number
}

export interface TurnRequest {
  readonly trajectory: string
  readonly group: string
  readonly turn: number
  readonly promptTokens: number
  readonly contextTokens: number
  /** Number of tokens that the turn will sample. It ends decoding only: admission and preemption must not use it. */
  readonly newTokens: number
  /** Upper bound on the tokens that the turn may sample. Scheduling rules may read it. */
  readonly maxNewTokens: number
  /** Priority of the request on engines with priorities: a smaller value is admitted first and preempted last. */
  readonly order: number
  readonly history: History
}

export interface Sequence extends Hold {
  readonly request: TurnRequest
  /** Sequence number of the request's arrival at the engine, from 0. */
  readonly arrival: number
  computed: number
  generated: number
  decoding: boolean
  /** Time at which the turn's first step began, ms; −1 before. */
  startedMs: number
  /** Number of the turn's context tokens that were cached when its first step began. */
  cachedTokens: number
  firstTokenMs: number
  preemptions: number
}

export function newSequence(request: TurnRequest, arrival: number): Sequence {
  const { trajectory, group, promptTokens } = request
  return {
    request,
    arrival,
    trajectory,
    group,
    promptTokens,
    sharedBlocks: 0,
    ownBlocks: 0,
    builds: false,
    computed: 0,
    generated: 0,
    decoding: false,
    startedMs: -1,
    cachedTokens: 0,
    firstTokenMs: -1,
    preemptions: 0,
  }
}

/** Returns the number of known tokens: the context plus the sampled tokens. */
export const knownTokens = ({ request, generated }: Sequence): number => request.contextTokens + generated

/** Chunk of a prompt, or of a preempted context, that one step computes: `tokens` tokens. */
export interface Chunk {
  readonly sequence: Sequence
  readonly tokens: number
}

/** One step of an engine, for which the memory is allocated. Its decodes can continue for `steps` such steps. */
export interface Batch {
  readonly chunks: readonly Chunk[]
  readonly decodes: readonly Sequence[]
  readonly steps: number
}
