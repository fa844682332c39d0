/**
 * What the scheduling rules of an engine family have in common: what they see, and how far pure decoding may run ahead.
 *
 * in   the sequences that wait and run, the cache        out  the batch of the next step
 * Invariant: a batch is made from what a real engine knows; `newTokens` of a request ends decoding and nothing else.
 */
import type { EngineModel } from './engineModel'
import type { KvCache } from './kvCache'
import type { Batch, Sequence } from './sequence'

/** An engine's state as its rules see and change it. */
export interface EngineState {
  readonly model: EngineModel
  readonly cache: KvCache
  /** In the order in which they are looked at. */
  readonly waiting: Sequence[]
  /** In the order of their admission. */
  readonly running: Sequence[]
  /** Requests are admitted and preempted by their order rather than by their arrival. */
  readonly priority: boolean
}

export interface EngineRules {
  /** Puts an arriving request in its place among those that wait. */
  enqueue(sequence: Sequence): void
  /** Admits and preempts; null where nothing can run. */
  next(): Batch | null
  /** A step of it is over: so many decode steps were done. */
  stepped(decodeSteps: number): void
}

/** Takes a sequence off the engine's running ones; all is to be computed again but what the cache keeps. */
export function preempt(state: EngineState, sequence: Sequence, keepTokens: number): void {
  state.running.splice(state.running.indexOf(sequence), 1)
  state.cache.close(sequence, keepTokens)
  sequence.computed = 0
  sequence.decoding = false
  sequence.preemptions++
}

/** How many steps the decodes may do before one of them ends or the cache has no block left; the first has its memory. */
export function decodeSteps(cache: KvCache, decodes: readonly Sequence[]): number {
  let most = Number.POSITIVE_INFINITY
  for (const { request, generated } of decodes) most = Math.min(most, request.newTokens - generated)
  return Math.min(most, stepsUntilFull(cache, decodes))
}

/** Steps that there are blocks for, the present one included, whose blocks are taken. */
function stepsUntilFull(cache: KvCache, decodes: readonly Sequence[]): number {
  const slack = slackOf(cache, decodes)
  const { blockTokens, availableBlocks } = cache
  // In `blockTokens` steps every sequence takes one block.
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

/** [blockTokens] how many sequences have room for so many tokens beyond the present step's. */
export function slackOf({ blockTokens }: KvCache, decodes: readonly Sequence[]): Int32Array {
  const slack = new Int32Array(blockTokens)
  for (const { sharedBlocks, ownBlocks, computed } of decodes) {
    slack[(sharedBlocks + ownBlocks) * blockTokens - computed - 1]!++
  }
  return slack
}
