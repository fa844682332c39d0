/**
 * Computes a lower bound on the makespan of a load under any scheduler: the larger of two bounds.
 *
 * in   a trace, an engine model, the number of engines        out  ms
 * 1. Longest chain: the latest end of a trajectory if each ran alone on an engine that caches all of it between turns.
 * 2. Total work of all trajectories, divided by the number of engines. A step's time is divided among the tokens that
 *    it computes. A decoding sequence bears its own terms, and a share of the step's fixed cost: 1/(most sequences that
 *    a step decodes), or its own tokens' share of the KV. The kind of share with the larger total is used. Over a batch
 *    that fits, either kind sums to at most one. The dense part is at least the sum of a fixed cost and a cost per
 *    token, since hypot(f, x) ≥ a·f + b·x for a² + b² = 1.
 */
import { capacityBlocks, decodeStepsMs, type EngineModel, stepMs } from './engineModel'
import { firstArrivalMs, type TracedTrajectory } from './trace'

export interface LowerBound {
  readonly chainMs: number
  readonly workMs: number
  readonly ms: number
}

export function lowerBoundMs(trace: readonly TracedTrajectory[], model: EngineModel, engines: number): LowerBound {
  const first = firstArrivalMs(trace)
  const chainMs = trace.reduce((most, one) => Math.max(most, one.arrivalMs - first + aloneMs(one, model)), 0)
  const workMs = leastWorkMs(trace, model) / engines
  return { chainMs, workMs, ms: Math.max(chainMs, workMs) }
}

/**
 * Returns the least time in ms from a trajectory's arrival to its end: on an engine of its own, with all earlier turns
 * cached.
 */
function aloneMs({ promptTokens, turns }: TracedTrajectory, model: EngineModel): number {
  let context = promptTokens
  let cached = 0
  let ms = 0
  turns.forEach(({ newTokens, toolMs, toolTokens }, i) => {
    // Another member of the group may have computed the prompt. Even then at least one token is prefilled.
    const tokens = i === 0 && model.prefixSharing ? 1 : context - cached
    for (let done = 0; done < tokens; done += model.maxBatchTokens) {
      const chunk = Math.min(model.maxBatchTokens, tokens - done)
      // The bound leaves out `prefillBase`, since a step with decodes of other sequences does not have it.
      ms += stepMs(model, 0, 0, [{ cachedTokens: context - tokens + done, tokens: chunk }]) - model.stepMs.prefillBase
    }
    if (newTokens > 1) ms += decodeStepsMs(model, 1, context + 1, newTokens - 1)
    cached = context + newTokens - 1
    context += newTokens + toolTokens
    if (i < turns.length - 1) ms += toolMs
  })
  return ms
}

const angles = Array.from({ length: 19 }, (_, i) => (i * Math.PI) / 36)

function leastWorkMs(trace: readonly TracedTrajectory[], model: EngineModel): number {
  const { family, stepMs: c, maxSequences, maxBatchTokens, prefixSharing, blockTokens } = model
  // SGLang decodes all running sequences, whatever a step's token budget is.
  const most = family === 'vllm' ? Math.min(maxSequences, maxBatchTokens) : maxSequences
  const room = capacityBlocks(model) * blockTokens
  const sums = { decodes: 0, attended: 0, own: 0, prefilled: 0, pairs: 0 }
  const seen = new Set<string>()
  for (const { groupId, promptTokens, turns } of trace) {
    let context = promptTokens
    let cached = prefixSharing && seen.has(groupId) ? promptTokens - 1 : 0
    seen.add(groupId)
    for (const { newTokens, toolTokens } of turns) {
      const chunk = context - cached
      sums.prefilled += chunk
      sums.pairs += chunk * (cached + chunk / 2)
      // The k-th decode attends to context + k tokens.
      const decodes = newTokens - 1
      const attended = decodes * context + (decodes * (decodes + 1)) / 2
      sums.decodes += decodes
      sums.attended += attended
      sums.own += prefixSharing ? attended - decodes * promptTokens : attended
      cached = context + newTokens - 1
      context += newTokens + toolTokens
    }
  }
  const perToken = c.decodePerSequence * sums.decodes + c.decodePerKvToken * sums.attended
  const prefill = c.prefillPerToken * sums.prefilled + c.prefillPerPair * sums.pairs
  const fixed = c.overhead + c.decodeBase
  const steps = Math.max(sums.decodes / most, sums.own / room)
  const dense = angles.map(
    angle =>
      steps * Math.cos(angle) * c.denseFloor + Math.sin(angle) * c.densePerToken * (sums.decodes + sums.prefilled),
  )
  return perToken + prefill + steps * fixed + Math.max(...dense)
}
