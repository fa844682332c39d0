/**
 * Defines the scheduling rules of an engine family, and what all families share: preemption and runs of decode steps.
 *
 * in   waiting and running sequences, the cache        out  the batch of the next step
 * Invariant: rules use only what a real engine knows. A request's `newTokens` ends its decoding and affects nothing
 * else.
 */
import type { EngineModel } from './engineModel'
import type { KvCache } from './kvCache'
import type { Batch, Sequence } from './sequence'

/** State of a simulated engine that its scheduling rules read and change. */
export interface EngineState {
  readonly model: EngineModel
  readonly cache: KvCache
  /** Waiting sequences in the order in which they will be admitted. */
  readonly waiting: Sequence[]
  /** Running sequences in the order in which they were admitted. */
  readonly running: Sequence[]
  /** true: engines whose family has priorities (vLLM) admit and preempt requests by priority; false: by arrival. */
  readonly priority: boolean
}

export interface EngineRules {
  /** Inserts a request into the waiting queue. */
  enqueue(sequence: Sequence): void
  /** Admits and preempts sequences, and returns the next batch; null if nothing can run. */
  next(): Batch | null
  /** Records that a batch ended after `decodeSteps` decode steps. */
  batchEnded(decodeSteps: number): void
}

/**
 * Preempts a running sequence. It must be computed again, except for the first `keepTokens` tokens while the cache
 * keeps them.
 */
export function preempt(state: EngineState, sequence: Sequence, keepTokens: number): void {
  state.running.splice(state.running.indexOf(sequence), 1)
  state.cache.close(sequence, keepTokens)
  sequence.computed = 0
  sequence.decoding = false
  sequence.preemptions++
}

/**
 * Returns how many steps the decodes can run until one of them ends or the cache is full. The first step's memory is
 * allocated already.
 */
export function decodeSteps(cache: KvCache, decodes: readonly Sequence[]): number {
  let most = Number.POSITIVE_INFINITY
  for (const { request, generated } of decodes) most = Math.min(most, request.newTokens - generated)
  return Math.min(most, stepsUntilFull(cache, decodes))
}

/**
 * Returns the number of steps for which the cache has blocks, including the present step, whose blocks are allocated.
 */
function stepsUntilFull(cache: KvCache, decodes: readonly Sequence[]): number {
  const slack = slackOf(cache, decodes)
  const { blockTokens, availableBlocks } = cache
  // Every sequence needs one new block per `blockTokens` steps.
  const periods = Math.floor(availableBlocks / decodes.length)
  let left = availableBlocks - periods * decodes.length
  let steps = periods * blockTokens
  for (let phase = 0; phase < blockTokens; phase++) {
    left -= slack[phase]!
    if (left < 0) break
    steps++
  }
  return steps + 1
}

/**
 * Returns [blockTokens]: entry n counts the sequences whose last block has room for n more tokens after the present
 * step.
 */
export function slackOf({ blockTokens }: KvCache, decodes: readonly Sequence[]): Int32Array {
  const slack = new Int32Array(blockTokens)
  for (const { sharedBlocks, ownBlocks, computed } of decodes) {
    slack[(sharedBlocks + ownBlocks) * blockTokens - computed - 1]!++
  }
  return slack
}
