/**
 * Finds out what a vLLM server can do by sending probe requests; nothing is concluded from its version number.
 *
 * in   a server, and what the run expects of it        out  traits; or a refusal that names the difference
 * Invariant: a server that does not fit the run is refused before its first turn: another vocabulary, another
 * tokenizer, too short a context, tokens without their ids; for training also logprobs that are not those of the
 * distribution sampled from, and no way to load weights. A server that was left paused, by a run that died during a
 * weight update, is resumed if this run trains.
 */
import { TroupeError } from '../../../runtime/errors'
import type { ServerHttp } from '../server/http'
import {
  askMs,
  checkContext,
  detokenized,
  generateMs,
  givesProcessedLogprobs,
  modelCards,
  modelHint,
  rawLogprobs,
} from '../server/probe'
import {
  completionEventOf,
  garbage,
  isMissing,
  isTaken,
  messageOf,
  objectOf,
  type Reply,
  unanswered,
} from '../server/reply'
import { checkTokenizer, unfitServer } from '../server/tokenizer'
import { loadPath } from './adapters'
import { completionBody, type Event } from './completion'
import { vllmDevelopment } from './development'
import { vllmMetrics } from './metrics'
import type { VllmExpectation, VllmTraits } from './traits'
import { resume } from './weights'

/**
 * Probes a server. @throws TroupeError engine.lost and engine.timeout if it does not answer; engine.failed if its
 * answer is not that of a vLLM server, or it is paused and this run does not train; engine.unfit (not retriable) if it
 * does not fit the run
 */
export async function probeVllm(http: ServerHttp, expected: VllmExpectation): Promise<VllmTraits> {
  const { url } = http
  const version = String(objectOf(url, '/version', await http.get('/version', askMs)).version ?? '')
  const { servedName, contextTokens } = await modelOf(http)
  checkContext(nameOf(url), contextTokens, expected, 'start the server with a longer --max-model-len')
  const metrics = await http.get('/metrics', askMs)
  if (metrics.status !== 200) throw unanswered(url, '/metrics', metrics)
  const { kvTokens, blockTokens, prefixCaching } = vllmMetrics(url, metrics.text)
  const development = await vllmDevelopment(http)
  if (development.isPaused) await resumeLeftPaused(http, expected.trained)
  await checkVocabulary(http, servedName, expected.vocabulary)
  await checkTokenizer(nameOf(url), expected, ids =>
    detokenized(http, { model: servedName, tokens: Array.from(ids) }, 'prompt'),
  )
  const processedLogprobs = await givesProcessedLogprobs(url, temperature => likeliest(http, servedName, temperature))
  const { takesWeights, packsHeads, device, maxSequences, adapters } = development
  const takesAdapters = expected.adapterRank !== undefined && adapters !== null && (await loadsAdapters(http))
  if (expected.trained && !processedLogprobs) {
    throw unfit(url, rawLogprobs, 'start the server with --logprobs-mode processed_logprobs')
  }
  if (takesAdapters && (adapters?.max_lora_rank ?? Infinity) < expected.adapterRank) {
    const differs = `the server takes adapters up to rank ${adapters?.max_lora_rank}, but the recipe's train.lora.rank is ${expected.adapterRank}`
    throw unfit(url, differs, 'start the server with a larger --max-lora-rank')
  }
  if (expected.trained && !takesWeights && !takesAdapters) {
    const hint = 'start the server with VLLM_SERVER_DEV_MODE=1 in its environment, where only you can reach it'
    throw unfit(url, 'the server has no endpoints to pause it and to load new weights', hint)
  }
  if (expected.trained && !takesAdapters && expected.tiedHead && device === 'cpu' && !packsHeads) {
    const differs =
      'on CPUs the server would keep the head of the old weights, because this model ties the head to the embedding'
    throw unfit(url, differs, 'start the server from the venv of `troupe setup vllm`, whose plugin fixes that')
  }
  const traits = {
    version,
    servedName,
    kvTokens,
    blockTokens,
    prefixSharing: prefixCaching,
    contextTokens,
    maxSequences: maxSequences ?? expected.maxSequences,
    prioritySign: await prioritySignOf(http, servedName),
    processedLogprobs,
    takesWeights,
    takesAdapters,
    takesSeed: device !== undefined && device !== 'cpu',
    wasPaused: development.isPaused,
  }
  await checkTurn(http, traits)
  return traits
}

/**
 * Resumes a paused server, which answers no generation. Only a run that trains may resume it: no other run changes the
 * server's weights, so the pause is left over from a process that died. For any other run the pause is an error.
 */
async function resumeLeftPaused(http: ServerHttp, trained: boolean): Promise<void> {
  if (trained) return resume(http)
  throw new TroupeError('engine.failed', {
    boundary: 'engine',
    retriable: true,
    message: `the vLLM server at ${http.url} is paused: another run is changing its weights, or died while it did`,
    hint: 'wait for the other run; if no other run exists, POST /resume to the server',
  })
}

async function modelOf(http: ServerHttp): Promise<{ servedName: string; contextTokens: number }> {
  const model = (await modelCards(http)).find(({ parent }) => parent === null || parent === undefined) // entries with a parent are adapters
  if (typeof model?.id !== 'string' || typeof model.max_model_len !== 'number') {
    throw garbage(http.url, '/v1/models names no model with a max_model_len')
  }
  return { servedName: model.id, contextTokens: model.max_model_len }
}

/** Checks that the server takes the model's last token id and refuses the next one. */
async function checkVocabulary(http: ServerHttp, model: string, vocabulary: number): Promise<void> {
  const takes = (reply: Reply) => isTaken(http.url, '/v1/completions', reply)
  const last = await complete(http, model, { prompt: [vocabulary - 1] })
  if (!takes(last)) {
    throw unfit(
      http.url,
      `the server refuses token id ${vocabulary - 1}, the model's last: ${messageOf(last.text)}`,
      modelHint,
    )
  }
  if (takes(await complete(http, model, { prompt: [vocabulary] }))) {
    throw unfit(
      http.url,
      `the server's vocabulary is larger than the model's ${vocabulary}: it takes id ${vocabulary}`,
      modelHint,
    )
  }
}

async function likeliest(http: ServerHttp, model: string, temperature: number) {
  const asked = { prompt: [0, 1, 2, 3], temperature, logprobs: 5, return_tokens_as_token_ids: true }
  const reply = objectOf(http.url, '/v1/completions', await complete(http, model, asked))
  const [choice] = (reply.choices ?? []) as { logprobs?: { top_logprobs?: Record<string, number>[] } }[]
  return Object.entries(choice?.logprobs?.top_logprobs?.[0] ?? {})
}

async function prioritySignOf(http: ServerHttp, model: string): Promise<-1 | 0> {
  const reply = await complete(http, model, { prompt: [0], priority: 1 })
  return isTaken(http.url, '/v1/completions', reply) ? -1 : 0
}

/**
 * Generates one token as a turn does, and checks that its id and logprob come: a server, or a proxy before it, may drop
 * fields that it does not know.
 */
async function checkTurn(http: ServerHttp, traits: VllmTraits): Promise<void> {
  const { url } = http
  const path = '/v1/completions'
  const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }
  const body = completionBody(traits, { context: Int32Array.of(0, 1, 2, 3), sampling, seed: 0, priority: 0 }, 1)
  const reply = await http.stream(path, body, generateMs, AbortSignal.timeout(generateMs))
  const hint = 'use a vLLM that knows return_token_ids (0.10.2 or later), without a proxy that drops fields'
  if (reply.status !== 200) {
    const text = await reply.text()
    isTaken(url, path, { status: reply.status, text })
    throw unfit(url, `the server refuses a turn: ${messageOf(text)}`, hint)
  }
  let isTold = false
  for await (const line of reply.lines) {
    const choice = completionEventOf<Event>(url, line).choices?.[0]
    const count = choice?.token_ids?.length ?? 0
    isTold ||= count > 0 && choice?.logprobs?.token_logprobs?.length === count
  }
  if (!isTold) throw unfit(url, "the server's answers have no token_ids with a logprob each", hint)
}

/**
 * Returns true if the server can load adapters. It is asked to load one without a name: without the feature, the
 * endpoint is missing.
 */
async function loadsAdapters(http: ServerHttp): Promise<boolean> {
  const reply = await http.post(loadPath, { lora_name: '', lora_path: '' }, askMs)
  return !isMissing(reply) && !isTaken(http.url, loadPath, reply)
}

const complete = (http: ServerHttp, model: string, body: object) =>
  http.post('/v1/completions', { model, max_tokens: 1, temperature: 1, top_p: 1, top_k: 0, ...body }, generateMs)

const nameOf = (url: string) => `vLLM server at ${url}`

const unfit = (url: string, differs: string, hint: string) => unfitServer(nameOf(url), differs, hint)
