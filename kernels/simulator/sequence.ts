/**
 * Defines a turn on a simulated engine: the request, its progress, and a batch of such sequences.
 *
 * `computed` counts tokens whose keys and values are cached. The last sampled token is computed in the next step.
 */
import type { Hold } from './kvCache'

/** Longest context that a trajectory has had computed on any engine. Computing it again is the cost of preemption and eviction. */
export interface History {
  computedTokens: number
}

export interface TurnRequest {
  readonly trajectory: string
  readonly group: string
  readonly turn: number
  readonly promptTokens: number
  readonly contextTokens: number
  /** Tokens that the turn will sample. Scheduling rules must not read this. */
  readonly newTokens: number
  /** Most tokens that the turn may sample. Scheduling rules may read this. */
  readonly maxNewTokens: number
  /** Priority: a smaller one goes first and is preempted last, on engines with priorities. */
  readonly order: number
  readonly history: History
}

export interface Sequence extends Hold {
  readonly request: TurnRequest
  /** Order of arrival at the engine. */
  readonly arrival: number
  computed: number
  generated: number
  decoding: boolean
  /** Start of its first step; −1 before. */
  startedMs: number
  /** Tokens of its context that were cached at the start. */
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

/** Tokens of a prompt, or of a preempted context, that one step computes. */
export interface Chunk {
  readonly sequence: Sequence
  readonly tokens: number
}

/** One step of an engine with its memory allocated. Its decodes can continue for `steps` such steps. */
export interface Batch {
  readonly chunks: readonly Chunk[]
  readonly decodes: readonly Sequence[]
  readonly steps: number
}
