/**
 * Simulates vLLM's scheduler (V1, as of 2026): decodes and started prompts first, then waiting requests in order of
 * arrival (or priority), all within one token budget per step.
 *
 * - A sequence that needs a block when none is free preempts running sequences until it has one: the newest first or,
 *   with priorities, the largest priority value first. It may preempt itself.
 * - A preempted sequence goes to the head of the queue (with priorities: to its place in their order) and is computed
 *   again, except for blocks that are still cached.
 * - A request is admitted if its whole context fits. Tokens that it will write are never reserved.
 * - A step that has preempted a sequence admits none.
 */
import { decodeSteps, type EngineRules, type EngineState, preempt } from './rules'
import { type Batch, type Chunk, knownTokens, type Sequence } from './sequence'

export function vllmRules(state: EngineState): EngineRules {
  const { model, cache, waiting, running, priority } = state

  /** Returns true if `a` is preempted before `b`, and admitted after it. */
  const isAfter = (a: Sequence, b: Sequence): boolean =>
    a.request.order > b.request.order || (a.request.order === b.request.order && a.arrival > b.arrival)

  function enqueue(sequence: Sequence): void {
    if (!priority) {
      waiting.push(sequence)
      return
    }
    let at = waiting.length
    while (at > 0 && isAfter(waiting[at - 1]!, sequence)) at--
    waiting.splice(at, 0, sequence)
  }

  function victim(): Sequence {
    const last = running[running.length - 1]!
    return priority ? running.reduce((worst, one) => (isAfter(one, worst) ? one : worst), last) : last
  }

  function next(): Batch | null {
    const tokens = new Map<Sequence, number>()
    let budget = model.maxBatchTokens
    let preempted = false
    for (let i = 0; i < running.length && budget > 0; i++) {
      const one = running[i]!
      const wanted = Math.min(knownTokens(one) - one.computed, budget)
      let gone = false
      while (!gone && !cache.grow(one, one.computed + wanted)) {
        const loser = victim()
        const at = running.indexOf(loser)
        budget += tokens.get(loser) ?? 0
        tokens.delete(loser)
        preempt(state, loser, loser.computed)
        if (priority) enqueue(loser)
        else waiting.unshift(loser)
        preempted = true
        gone = loser === one
        if (at <= i) i--
      }
      if (gone) continue
      tokens.set(one, wanted)
      budget -= wanted
    }
    while (!preempted && budget > 0 && running.length < model.maxSequences) {
      const head = waiting[0]
      if (head === undefined || !cache.hasRoomFor(head, knownTokens(head))) break
      waiting.shift()
      head.computed = cache.open(head, knownTokens(head))
      const wanted = Math.min(knownTokens(head) - head.computed, budget)
      cache.grow(head, head.computed + wanted)
      running.push(head)
      tokens.set(head, wanted)
      budget -= wanted
    }
    if (tokens.size === 0) return null
    const chunks: Chunk[] = []
    const decodes: Sequence[] = []
    for (const [sequence, count] of tokens) {
      if (sequence.decoding) decodes.push(sequence)
      else chunks.push({ sequence, tokens: count })
    }
    // Decoding never frees memory, so no waiting request can be admitted until a sequence ends.
    const alone = chunks.length === 0 && decodes.length === running.length && !preempted
    return { chunks, decodes, steps: alone ? decodeSteps(cache, decodes) : 1 }
  }

  return { enqueue, next, batchEnded: () => undefined }
}
