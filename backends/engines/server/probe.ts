/**
 * Probe requests that several kinds of inference servers share, sent before a server is used.
 *
 * in   a server, and what the run expects of it
 * out  its models, its decoding of ids, whether its logprobs can be trained on
 * Invariant: no probe changes what the server does for other clients. Answers that no inference server gives are the
 * error `engine.failed`; answers that do not fit the run, `engine.unfit`.
 */
import type { ServerExpectation } from './expectation'
import type { ServerHttp } from './http'
import { garbage, isMissing, isTaken, objectOf } from './reply'
import { unfitServer } from './tokenizer'

export const askMs = 30_000
/** Deadline in ms of a probe that generates: the server may compile and warm up first. */
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

/**
 * Checks the server's context length. @param server kind and address of the server, for the message
 * @throws TroupeError engine.unfit if the run's longest context does not fit
 */
export function checkContext(server: string, contextTokens: number, expected: ServerExpectation, hint: string): void {
  if (contextTokens >= expected.contextTokens) return
  const differs = `its contexts have at most ${contextTokens} tokens, the recipe's longest context has ${expected.contextTokens}`
  throw unfitServer(server, differs, `${hint}, or lower limits.contextTokens and evaluation.limits.contextTokens`)
}

/**
 * Returns the text in the field `field` of the answer of /detokenize to `body`; undefined if the server has no such
 * endpoint, refuses the request, or answers without that text.
 */
export async function detokenized(http: ServerHttp, body: object, field: string): Promise<string | undefined> {
  const reply = await http.post('/detokenize', body, askMs)
  if (isMissing(reply) || !isTaken(http.url, '/detokenize', reply)) return undefined
  const text = objectOf(http.url, '/detokenize', reply)[field]
  return typeof text === 'string' ? text : undefined
}

/** Most likely first tokens of a generation, each with its logprob; a token may be an id or a text. */
type Likeliest<Token> = readonly (readonly [Token, number])[]

/** Low temperature: the logprobs at it are compared with those at temperature 1. */
const cold = 0.25

/**
 * Returns true if a server's logprobs are those of the distribution that it samples from. At a temperature of T the
 * differences between two tokens' logprobs are then 1/T times those at 1, and the probabilities still sum to at most 1.
 * Raw logprobs do not change with T; logits do, but their exponentials sum to more than 1. @throws TroupeError
 * engine.failed if the server returns no logprobs that can be compared
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
    throw garbage(url, 'the server returns no logprobs of the most likely tokens, or the same one for each of them')
  }
  const stretch = (frozen.get(first[0])! - frozen.get(last[0])!) / (first[1] - last[1])
  const mass = (entries: Iterable<readonly [Token, number]>) =>
    [...entries].reduce((sum, [, logprob]) => sum + Math.exp(logprob), 0)
  // The tolerances allow for bfloat16, in which two runs differ a little.
  return (
    Math.abs(stretch * cold - 1) < 0.2 && mass(warm) < 1.01 && mass(frozen) < 1.01 && mass(frozen) > mass(warm) - 0.01
  )
}

export const rawLogprobs = "the server's logprobs are not those of the distribution that it samples from"
/** Hint for a server that serves another model than the run's. */
export const modelHint =
  "start the server with the run's model: the directory of model.path in the recipe, or the model that the run made"
