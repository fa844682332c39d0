/**
 * Joins the parts of an answer that several attempts sampled, because an attempt was interrupted.
 *
 * in   tokens, logprobs and segments of each attempt        out  those of the answer
 * Invariant: tokens keep their order, and each keeps the logprob and the policy version of its sampling.
 */
import type { GenerateRequest, Generation, PartialGeneration } from '../../backends/engines/engine'
import type { PolicySegment } from '../../messages/facts'
import { concatArrays } from '../../runtime/concatArrays'

/**
 * Joins tokens, logprobs and segments of a generation that several attempts made; the other fields are the last
 * attempt's. Entropies are kept only for a generation of one part.
 */
export function joined(parts: readonly PartialGeneration[], last: Generation): Omit<Generation, 'finish'> {
  const { finish: _, entropies, ...rest } = last
  if (parts.length === 1) return { ...rest, ...(entropies === undefined ? {} : { entropies }) }
  let at = 0
  const segments: PolicySegment[] = []
  for (const part of parts) {
    for (const { policyVersion, start, end } of part.segments)
      segments.push({ policyVersion, start: at + start, end: at + end })
    at += part.tokens.length
  }
  const tokens = concatArrays(
    Int32Array,
    parts.map(part => part.tokens),
  )
  return {
    ...rest,
    tokens,
    logprobs: concatArrays(
      Float32Array,
      parts.map(part => part.logprobs),
    ),
    segments,
  }
}

const noTiming = { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 }

/**
 * Returns the answer if the parts are all of it: they end with a stop token, or have as many tokens as the request
 * allows. An engine that was lost after an answer's last token leaves such parts. Else undefined.
 */
export function wholeOf(
  parts: readonly PartialGeneration[],
  { maxTokens, sampling }: Pick<GenerateRequest, 'maxTokens' | 'sampling'>,
): (Omit<Generation, 'finish'> & { readonly finish: 'stop' | 'length' }) | undefined {
  const last = parts.at(-1)?.tokens.at(-1)
  if (last === undefined) return undefined
  const count = parts.reduce((sum, part) => sum + part.tokens.length, 0)
  const finish = sampling.stopTokens.includes(last) ? 'stop' : count >= maxTokens ? 'length' : undefined
  if (finish === undefined) return undefined
  const nothing = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] }
  const end: Generation = { ...nothing, text: '', finish, cachedTokens: 0, preemptions: 0, timing: noTiming }
  return { ...joined([...parts, end], end), finish }
}
