/**
 * The questions that a probe puts to every kind of inference server.
 *
 * in   a server, and what the run expects of it        out  its models, its reading of ids, whether its logprobs can be trained on
 * Invariant: no question changes what the server does for others. A server that does not answer them as an inference server does
 * is `engine.failed`, one whose answer does not fit the run is `engine.unfit`.
 */
import type { ServerExpectation } from './expectation'
import type { ServerHttp } from './http'
import { garbage, isMissing, isTaken, objectOf } from './reply'
import { unfitServer } from './tokenizer'

export const askMs = 30_000
/** A first generation may compile and warm up. */
export const generateMs = 120_000

/** One entry of /v1/models, unchecked. */
interface ModelCard {
  readonly id?: unknown
  readonly parent?: unknown
  readonly max_model_len?: unknown
}

export async function modelCards(http: ServerHttp): Promise<readonly ModelCard[]> {
  const { data } = objectOf(http.url, '/v1/models', await http.get('/v1/models', askMs))
  return Array.isArray(data) ? data : []
}

/** @param server kind and address. @throws TroupeError engine.unfit where the run's longest context does not fit the server's */
export function checkContext(server: string, contextTokens: number, expected: ServerExpectation, hint: string): void {
  if (contextTokens >= expected.contextTokens) return
  const differs = `its contexts have at most ${contextTokens} tokens, the recipe's limits.contextTokens is ${expected.contextTokens}`
  throw unfitServer(server, differs, `${hint}, or lower limits.contextTokens`)
}

/** The text that /detokenize answers to `body`, in its `field`; undefined where the server has no tokenizer. */
export async function detokenized(http: ServerHttp, body: object, field: string): Promise<string | undefined> {
  const reply = await http.post('/detokenize', body, askMs)
  if (isMissing(reply) || !isTaken(http.url, '/detokenize', reply)) return undefined
  const text = objectOf(http.url, '/detokenize', reply)[field]
  return typeof text === 'string' ? text : undefined
}

/** The likeliest first tokens of a generation, by any name, with their logprobs. */
type Likeliest<Token> = readonly (readonly [Token, number])[]

const cold = 0.25

/**
 * Decides whether a server's logprobs are those of the distribution that it samples from. At a temperature of T the differences
 * between two tokens' logprobs are then 1/T times those at 1, and they stay logprobs: together not above 1. Raw logprobs do not
 * change; logits do, but are no logprobs.
 */
export async function givesProcessedLogprobs<Token>(
  url: string,
  likeliestAt: (temperature: number) => Promise<Likeliest<Token>>,
): Promise<boolean> {
  const warm = await likeliestAt(1)
  const frozen = new Map(await likeliestAt(cold))
  const common = warm.filter(([token]) => frozen.has(token)).sort((a, b) => b[1] - a[1])
  const [first, last] = [common[0], common.at(-1)]
  if (first === undefined || last === undefined || first[1] - last[1] < 1e-3) {
    throw garbage(url, 'it gives no logprobs of the likeliest tokens')
  }
  const stretch = (frozen.get(first[0])! - frozen.get(last[0])!) / (first[1] - last[1])
  const mass = (entries: Iterable<readonly [Token, number]>) =>
    [...entries].reduce((sum, [, logprob]) => sum + Math.exp(logprob), 0)
  // In bfloat16 two runs differ by a little.
  return (
    Math.abs(stretch * cold - 1) < 0.2 && mass(warm) < 1.01 && mass(frozen) < 1.01 && mass(frozen) > mass(warm) - 0.01
  )
}

export const rawLogprobs = 'its logprobs are not those of the distribution that it samples from'
/** What to do about a server that has another model. */
export const modelHint =
  "start it with the run's model: what stands in the recipe's model.path, or was made for the run"
