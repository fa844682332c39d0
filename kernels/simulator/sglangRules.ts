/**
 * Simulates SGLang's scheduler (its defaults, read in 2026): prompts before decodes, in separate steps.
 *
 * - Requests are admitted in order of arrival, if their context fits. While other requests run, the tokens that a
 *   request must compute, plus those that it may write (at most 4096 are counted), must also be fewer than the
 *   available tokens minus an estimate for the running requests: the tokens that they may write (counted in the same
 *   way), times a ratio. Requests admitted in the same step count without the ratio.
 * - The ratio starts at 0.7, falls to 14 % of that over 600 decode steps, and is reset when the engine is idle.
 * - A decode step without memory retracts the requests that have written least (among equals the longest context first)
 *   until it has memory. They go to the end of the queue, and their contexts stay in the prefix cache. The ratio is
 *   then set to the share of their allowed tokens that the remaining requests will have written in 20 steps, at most 1.
 * - A prompt that fills a step's budget continues in the next step.
 */
import { decodeSteps, type EngineRules, type EngineState, preempt, slackOf } from './rules'
import { type Batch, type Chunk, knownTokens, type Sequence } from './sequence'

const clippedNewTokens = 4096
const firstRatio = 0.7
const leastRatio = firstRatio * 0.14
const decayPerStep = (firstRatio - leastRatio) / 600
/** Number of decode steps of every remaining request that the ratio set after a retraction allows for. */
const retractSteps = 20

export function sglangRules(state: EngineState): EngineRules {
  const { model, cache, waiting, running } = state
  let ratio = firstRatio

  const mayWrite = ({ request, generated }: Sequence): number => Math.max(0, request.maxNewTokens - generated)
  const clipped = (sequence: Sequence): number => Math.min(mayWrite(sequence), clippedNewTokens)
  const paged = (tokens: number): number => Math.ceil(tokens / cache.blockTokens) * cache.blockTokens

  /** Returns the tokens that admission counts for a request: those to compute plus up to 4096 that it may write. */
  function demand(sequence: Sequence): number {
    const known = knownTokens(sequence)
    return paged(known - cache.cachedTokens(sequence, known)) + clipped(sequence)
  }

  function admit(chunks: Chunk[]): void {
    let budget = model.maxBatchTokens - chunks.reduce((sum, chunk) => sum + chunk.tokens, 0)
    let promised = running.reduce((sum, one) => sum + ratio * clipped(one), 0)
    while (budget > 0 && running.length < model.maxSequences) {
      const head = waiting[0]
      if (head === undefined) return
      const known = knownTokens(head)
      const alone = running.length === 0
      const room = cache.availableBlocks * cache.blockTokens - promised
      if ((!alone && demand(head) >= room) || !cache.hasRoomFor(head, known)) return
      waiting.shift()
      head.computed = cache.open(head, known)
      const tokens = Math.min(known - head.computed, budget)
      cache.grow(head, head.computed + tokens)
      running.push(head)
      chunks.push({ sequence: head, tokens })
      budget -= tokens
      // A prompt that continues in the next step uses up this step's budget, so no further prompt is admitted.
      if (head.computed + tokens < known) return
      promised += clipped(head)
    }
  }

  /** Allocates memory for one more token of every running sequence; retracts sequences until there is enough. */
  function makeRoom(): void {
    const missing = () => running.filter(one => (one.sharedBlocks + one.ownBlocks) * cache.blockTokens <= one.computed)
    let retracted = false
    while (missing().length > cache.availableBlocks) {
      const loser = running.reduce((worst, one) => (goesBefore(one, worst) ? one : worst))
      preempt(state, loser, loser.request.contextTokens)
      waiting.push(loser)
      retracted = true
    }
    for (const one of running) cache.grow(one, one.computed + 1)
    if (!retracted) return
    const written = running.reduce((sum, one) => sum + one.generated, 0)
    const most = running.reduce((sum, one) => sum + one.request.maxNewTokens + 1, 0)
    ratio = Math.min(1, (written + retractSteps * running.length) / most)
  }

  function next(): Batch | null {
    if (running.length === 0) ratio = firstRatio
    const chunks: Chunk[] = []
    for (const sequence of running) {
      if (sequence.decoding) continue
      const tokens = Math.min(knownTokens(sequence) - sequence.computed, model.maxBatchTokens)
      // No step has decoded since this sequence was admitted, so the memory that it needs is still available.
      cache.grow(sequence, sequence.computed + tokens)
      chunks.push({ sequence, tokens })
    }
    admit(chunks)
    if (chunks.length > 0) return { chunks, decodes: [], steps: 1 }
    if (running.length === 0) return null
    makeRoom()
    const decodes = [...running]
    const most = decodeSteps(cache, decodes)
    return { chunks, decodes, steps: waiting.length === 0 ? most : stepsUntilAdmission(decodes, most) }
  }

  /**
   * Returns the number of decode steps after which the head of the queue may be admitted, at most `most`. While
   * decoding, free memory and the ratio both fall.
   */
  function stepsUntilAdmission(decodes: readonly Sequence[], most: number): number {
    if (running.length >= model.maxSequences) return most
    const head = waiting[0]!
    const needed = demand(head)
    const slack = slackOf(cache, decodes)
    const growing = decodes.filter(one => mayWrite(one) <= clippedNewTokens).length
    // Once one more running request may write fewer than 4096 tokens, the estimate falls faster, so the computation
    // stops before that step.
    const longer = decodes.map(one => mayWrite(one) - clippedNewTokens).filter(steps => steps > 0)
    const last = Math.min(most, ...longer)
    let free = cache.availableBlocks
    let estimate = decodes.reduce((sum, one) => sum + clipped(one), 0)
    for (let steps = 1; steps < last; steps++) {
      estimate -= growing
      if (needed < free * cache.blockTokens - Math.max(leastRatio, ratio - steps * decayPerStep) * estimate)
        return steps
      free -= slack[(steps - 1) % cache.blockTokens]!
    }
    return last
  }

  return {
    enqueue: sequence => waiting.push(sequence),
    next,
    batchEnded: steps => {
      ratio = Math.max(leastRatio, ratio - steps * decayPerStep)
    },
  }
}

/**
 * Returns true if `one` is retracted before `other`: it has written fewer tokens; if both have written equally many,
 * its context is longer; if the contexts are equally long, it arrived later.
 */
function goesBefore(one: Sequence, other: Sequence): boolean {
  if (one.generated !== other.generated) return one.generated < other.generated
  if (one.request.contextTokens !== other.request.contextTokens) {
    return one.request.contextTokens > other.request.contextTokens
  }
  return one.arrival > other.arrival
}
