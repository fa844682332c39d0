/**
 * SGLang's scheduler (its defaults, read 2026): prompts before decodes, each in steps of their own.
 *
 * - Admission in order of arrival: what a request is to compute and may write (at most 4096 of it) must be less than what
 *   is available, less an estimate of what running requests will write: the same, times a ratio.
 * - The ratio begins at 0.7, falls to a seventh of that over 600 decode steps, and begins anew when the engine is idle.
 * - A decode step without memory retracts those that have written least (of these the longest prompt) until it has it; they
 *   go to the end of the queue, keep their prompt in the prefix cache, and the ratio rises to what was written so far.
 * - The prompt that fills a step's budget goes on in the next one.
 */
import { decodeSteps, type EngineRules, type EngineState, preempt, slackOf } from './rules'
import { type Batch, type Chunk, knownTokens, type Sequence } from './sequence'

const clippedNewTokens = 4096
const firstRatio = 0.7
const leastRatio = firstRatio * 0.14
const decayPerStep = (firstRatio - leastRatio) / 600
/** Steps of each remaining request that the ratio after a retraction provides for. */
const retractSteps = 20

export function sglangRules(state: EngineState): EngineRules {
  const { model, cache, waiting, running } = state
  let ratio = firstRatio

  const mayWrite = ({ request, generated }: Sequence): number => Math.max(0, request.maxNewTokens - generated)
  const clipped = (sequence: Sequence): number => Math.min(mayWrite(sequence), clippedNewTokens)
  const paged = (tokens: number): number => Math.ceil(tokens / cache.blockTokens) * cache.blockTokens

  /** What a request is counted with when it asks to be admitted. */
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
      // One that goes on in the next step is the last of this one.
      if (head.computed + tokens < known) return
      promised += clipped(head)
    }
  }

  /** Takes the memory for one more token of every running sequence. */
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
      // Nothing was decoded since it was admitted, so the room that it was admitted for is still there.
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

  /** While decoding, memory shrinks and the ratio falls: the first step before which the head of the queue may be let in. */
  function stepsUntilAdmission(decodes: readonly Sequence[], most: number): number {
    if (running.length >= model.maxSequences) return most
    const head = waiting[0]!
    const needed = demand(head)
    const slack = slackOf(cache, decodes)
    const growing = decodes.filter(one => mayWrite(one) <= clippedNewTokens).length
    // From where another one may write no more than what is looked at, the estimate falls faster.
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
    stepped: steps => {
      ratio = Math.max(leastRatio, ratio - steps * decayPerStep)
    },
  }
}

/** Whether `one` is retracted before `other`: it has written less, or as much behind a longer prompt. */
function goesBefore(one: Sequence, other: Sequence): boolean {
  if (one.generated !== other.generated) return one.generated < other.generated
  if (one.request.contextTokens !== other.request.contextTokens) {
    return one.request.contextTokens > other.request.contextTokens
  }
  return one.arrival > other.arrival
}
