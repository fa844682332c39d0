/**
 * A turn on a simulated engine: what is to be computed, what is, and when it began and ended.
 * `computed` counts tokens whose keys and values are in the cache; the token sampled last never is until the next step.
 */
import type { Hold } from './kvCache'

/** What a trajectory had computed before, on any engine: computing it again is what preemption and eviction cost. */
export interface History {
  computedTokens: number
}

export interface TurnRequest {
  readonly trajectory: string
  readonly group: string
  readonly turn: number
  readonly promptTokens: number
  readonly contextTokens: number
  /** Tokens that it will sample, which no rule of an engine may look at. */
  readonly newTokens: number
  /** Tokens that it may sample, which rules may look at. */
  readonly maxNewTokens: number
  /** Smaller goes first and is preempted last, where priorities count. */
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
  /** When its first step began, and what of its context was there; −1 before. */
  startedMs: number
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

/** Tokens known so far: the context and what was sampled. */
export const knownTokens = ({ request, generated }: Sequence): number => request.contextTokens + generated

/** A part of a prompt (or of what is computed again) in one step. */
export interface Chunk {
  readonly sequence: Sequence
  readonly tokens: number
}

/** One step of an engine, its memory taken already; the decodes may go on for `steps` such steps. */
export interface Batch {
  readonly chunks: readonly Chunk[]
  readonly decodes: readonly Sequence[]
  readonly steps: number
}
