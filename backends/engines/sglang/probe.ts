/**
 * What an SGLang server can do, found out by asking it: nothing is taken from its version number.
 *
 * in   a server, and what the run expects of it        out  traits; or a refusal that says what differs
 * Invariant: no question here can change or harm what the server does for others: it is never paused, and no id outside
 * its vocabulary is sent, which would end a server on a GPU. Only one that stands still is told to go on. A server that a run cannot be trained on is refused before its
 * first turn.
 * Source: srt/entrypoints/http_server.py, srt/server_args.py, docs/advanced_features/sglang_for_rl.md of sgl-project/sglang.
 */
import type { ServerExpectation } from '../server/expectation'
import type { ServerHttp } from '../server/http'
import { garbage, isMissing, isTaken, messageOf, objectOf, type Reply } from '../server/reply'
import { checkTokenizer, unfitServer } from '../server/tokenizer'
import { sglangLoads } from './loads'
import { goOn } from './weights'

export interface SglangTraits {
  readonly version: string
  readonly servedName: string
  readonly kvTokens: number
  /** Tokens a page. */
  readonly blockTokens: number
  readonly prefixSharing: boolean
  /** One more than the longest prompt: SGLang keeps some tokens of --context-length for itself. */
  readonly contextTokens: number
  readonly maxSequences: number
  /**
   * How the server reads `priority`: -1 the largest value waits longest and makes room first, 1 the smallest, 0 it was not
   * started to look at it. What it takes back when KV runs out is chosen by the tokens generated so far, whatever the priority.
   */
  readonly prioritySign: -1 | 0 | 1
  /** Logprobs come after the temperature. */
  readonly processedLogprobs: boolean
  /** Pause, new weights from a directory, continue; and answers name the weights that sampled them. */
  readonly takesWeights: boolean
  /** What the server calls the weights that it was started with. */
  readonly weightLabel: string
  /** Answers say from which token on which weights sampled: a pause need not end what runs. */
  readonly tellsSpans: boolean
  /** A seed decides the tokens: --enable-deterministic-inference. */
  readonly takesSeed: boolean
  readonly takesStreamInterval: boolean
  /** Memory can be given back: --enable-memory-saver. */
  readonly sleeps: boolean
}

const askMs = 30_000
/** Then the server may be paused. */
const stillMs = 1000
/** Of --context-length, for itself: scheduler.py, max_req_input_len. */
const keptTokens = 6
/** A first generation may compile and warm up. */
const generateMs = 120_000

/** @throws TroupeError engine.lost, engine.timeout, engine.failed; engine.unfit (not retriable) */
export async function probeSglang(http: ServerHttp, expected: ServerExpectation): Promise<SglangTraits> {
  const { url } = http
  const info = await eitherOf(http, '/server_info', '/get_server_info')
  const model = await eitherOf(http, '/model_info', '/get_model_info')
  if (model.is_generation === false) throw unfit(url, 'its model generates no text', "start it with the run's model")
  const { servedName, contextTokens } = await contextOf(http, info)
  if (contextTokens < expected.contextTokens) {
    const differs = `its contexts have at most ${contextTokens} tokens, the recipe's limits.contextTokens is ${expected.contextTokens}`
    throw unfit(
      url,
      differs,
      'start it with a longer --context-length (SGLang keeps some of it), or lower limits.contextTokens',
    )
  }
  checkPreferred(url, info.preferred_sampling_params)
  if (expected.trained) await awaken(http)
  await checkVocabulary(http, expected.vocabulary)
  if (info.skip_tokenizer_init !== true) {
    await checkTokenizer(`SGLang server at ${url}`, expected, ids => detokenized(http, ids))
  }
  const takesStreamInterval =
    info.incremental_streaming_output !== true && (await askWith(http, { stream_interval: 1 })).takes
  const { processedLogprobs, meta } = await logprobsOf(http)
  const tellsSpans = Array.isArray(meta.weight_versions)
  const takesWeights = typeof meta.weight_version === 'string' && (await hasWeightEndpoints(http))
  if (expected.trained && !processedLogprobs) {
    const differs = 'its logprobs are not those of the distribution that it samples from'
    throw unfit(url, differs, 'start it without SGLANG_RETURN_ORIGINAL_LOGPROB in its environment')
  }
  if (expected.trained && !takesWeights) {
    const differs =
      'it has no endpoints to pause it and to give it new weights, or does not name its weights in its answers'
    throw unfit(
      url,
      differs,
      'use a version of SGLang with /pause_generation, /update_weights_from_disk and weight_version',
    )
  }
  const loads = await sglangLoads(http)
  const kvTokens = loads.kvTokens || Number(info.max_total_num_tokens)
  if (!Number.isInteger(kvTokens) || kvTokens < 1) throw garbage(url, 'it does not say its max_total_num_tokens')
  const low = info.schedule_low_priority_values_first === true
  return {
    version: String(info.version ?? ''),
    servedName,
    kvTokens,
    blockTokens: wholeNumber(info.page_size) ?? 1,
    prefixSharing: info.disable_radix_cache !== true,
    contextTokens,
    maxSequences: loads.maxSequences || wholeNumber(info.max_running_requests) || expected.maxSequences,
    prioritySign: info.enable_priority_scheduling !== true ? 0 : low ? -1 : 1,
    processedLogprobs,
    takesWeights,
    weightLabel: String(meta.weight_version ?? ''),
    tellsSpans,
    takesSeed: info.enable_deterministic_inference === true,
    takesStreamInterval,
    sleeps: info.enable_memory_saver === true,
  }
}

const wholeNumber = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isInteger(value) && value > 0 ? value : undefined

/** Endpoints have lost the `get_` of older servers. */
async function eitherOf(http: ServerHttp, path: string, older: string): Promise<Readonly<Record<string, unknown>>> {
  const reply = await http.get(path, askMs)
  return reply.status === 404
    ? objectOf(http.url, older, await http.get(older, askMs))
    : objectOf(http.url, path, reply)
}

async function contextOf(http: ServerHttp, info: Readonly<Record<string, unknown>>) {
  const { data } = objectOf(http.url, '/v1/models', await http.get('/v1/models', askMs))
  const [card] = (Array.isArray(data) ? data : []) as { id?: unknown; max_model_len?: unknown }[]
  const length = wholeNumber(card?.max_model_len)
  if (typeof card?.id !== 'string' || length === undefined) {
    throw garbage(http.url, '/v1/models names no model with a max_model_len')
  }
  // Beyond max_req_input_len a generation would be cut short.
  const longest = wholeNumber(info.max_req_input_len) ?? length - keptTokens
  return { servedName: card.id, contextTokens: Math.min(length, longest) }
}

/** What a request leaves out is taken from --preferred-sampling-params. All that we know of is said in each request. */
function checkPreferred(url: string, preferred: unknown): void {
  const fields = typeof preferred === 'object' && preferred !== null ? Object.keys(preferred) : []
  const said = new Set(
    'max_new_tokens min_new_tokens temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty stop_token_ids ignore_eos n skip_special_tokens spaces_between_special_tokens no_stop_trim'.split(
      ' ',
    ),
  )
  const foreign = fields.filter(name => !said.has(name))
  if (foreign.length === 0) return
  const differs = `it adds sampling parameters of its own to each request: ${foreign.join(', ')}`
  throw unfit(url, differs, 'start it without --preferred-sampling-params')
}

/**
 * A bias on id -1 is refused with the ids that there are, and where it is not checked it falls on the last one and changes
 * nothing. An id beyond the vocabulary would be a memory error on a GPU.
 */
async function checkVocabulary(http: ServerHttp, vocabulary: number): Promise<void> {
  const { takes, text } = await askWith(http, { logit_bias: { '-1': 0 } })
  const last = /\[0, (\d+)\]/.exec(takes ? '' : messageOf(text))?.[1]
  if (last === undefined || Number(last) + 1 === vocabulary) return
  const differs = `its vocabulary has ${Number(last) + 1} ids, the model's has ${vocabulary}`
  const hint = "start it with the run's model: what stands in the recipe's model.path, or was made for the run"
  throw unfit(http.url, differs, hint)
}

async function detokenized(http: ServerHttp, ids: Int32Array): Promise<string | undefined> {
  const reply = await http.post('/detokenize', { tokens: Array.from(ids), skip_special_tokens: false }, askMs)
  if (isMissing(reply) || !isTaken(http.url, '/detokenize', reply)) return undefined
  const { text } = objectOf(http.url, '/detokenize', reply)
  return typeof text === 'string' ? text : undefined
}

/**
 * Whoever died while it gave the server weights left it paused: it answers no generation, and nothing tells. To go on
 * changes nothing where it is not paused, but slow. Only who gives it weights may say that nobody else is just doing so.
 */
async function awaken(http: ServerHttp): Promise<void> {
  const timer = setTimeout(() => void goOn(http).catch(() => {}), stillMs) // the generation itself will tell
  try {
    await ask(http, {})
  } finally {
    clearTimeout(timer)
  }
}

type Meta = Readonly<Record<string, unknown>>

/** At a temperature of T the differences between two tokens' logprobs are 1/T times those at 1. Raw ones do not change. */
async function logprobsOf(http: ServerHttp): Promise<{ processedLogprobs: boolean; meta: Meta }> {
  const cold = 0.25
  let meta: Meta = {}
  const at = async (temperature: number) => {
    const { meta_info } = objectOf(http.url, '/generate', await ask(http, { temperature }))
    meta = (meta_info ?? {}) as Meta
    const first = (meta.output_top_logprobs as unknown[] | undefined)?.[0] as [number, number, unknown][] | undefined
    return (first ?? []).map(([logprob, token]) => [token, logprob] as const)
  }
  const warm = await at(1)
  const frozen = new Map(await at(cold))
  const common = warm.filter(([token]) => frozen.has(token)).sort((a, b) => b[1] - a[1])
  const [first, last] = [common[0], common.at(-1)]
  if (first === undefined || last === undefined || first[1] - last[1] < 1e-3) {
    throw garbage(http.url, 'it gives no logprobs of the likeliest tokens')
  }
  const stretch = (frozen.get(first[0])! - frozen.get(last[0])!) / (first[1] - last[1])
  // In bfloat16 two runs differ by a little.
  return { processedLogprobs: Math.abs(stretch * cold - 1) < 0.2, meta }
}

/** None of these is called: what takes POST alone says so when it is asked by GET, an update without a path is refused. */
async function hasWeightEndpoints(http: ServerHttp): Promise<boolean> {
  const path = '/update_weights_from_disk'
  const update = await http.post(path, {}, askMs)
  if (isMissing(update)) return false
  isTaken(http.url, path, update) // it need not be
  return (await takesPost(http, '/pause_generation')) && (await takesPost(http, '/continue_generation'))
}

async function takesPost(http: ServerHttp, path: string): Promise<boolean> {
  const reply = await http.get(path, askMs)
  if (reply.status === 404) return false
  if (reply.status !== 405) isTaken(http.url, path, reply)
  return true
}

/** Asks with a field that an older server may not know: that one fails at it (500), again and again, and at it alone. */
async function askWith(http: ServerHttp, field: object): Promise<{ readonly takes: boolean; readonly text: string }> {
  let reply = await ask(http, field)
  if (reply.status === 500) {
    objectOf(http.url, '/generate', await ask(http, {}))
    reply = await ask(http, field)
    if (reply.status === 500) return { takes: false, text: reply.text }
  }
  return { takes: isTaken(http.url, '/generate', reply), text: reply.text }
}

const ask = (http: ServerHttp, sampling: object): Promise<Reply> =>
  http.post(
    '/generate',
    {
      input_ids: [0, 1, 2, 3],
      sampling_params: {
        max_new_tokens: 1,
        temperature: 1,
        top_p: 1,
        top_k: -1,
        min_p: 0,
        ignore_eos: true,
        ...sampling,
      },
      return_logprob: true,
      top_logprobs_num: 5,
      stream: false,
    },
    generateMs,
  )

const unfit = (url: string, differs: string, hint: string) => unfitServer(`SGLang server at ${url}`, differs, hint)
