/**
 * Finds out what an SGLang server can do by sending probe requests; nothing is concluded from its version number.
 *
 * in   a server, and what the run expects of it        out  traits; or a refusal that names the difference
 * Invariant: no probe changes or harms what the server does for other clients. The server is never paused, and told to
 * continue only if it answers no generation for a second. No token id beyond its vocabulary is sent, since that would
 * crash a server on a GPU. If the run trains, a server that lacks what training needs is refused before the run's first
 * turn.
 * Source: srt/entrypoints/http_server.py, srt/server_args.py, docs/advanced_features/sglang_for_rl.md of
 * sgl-project/sglang.
 */
import type { ServerExpectation } from '../server/expectation'
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
import { garbage, isMissing, isTaken, objectOf, type Reply } from '../server/reply'
import { checkTokenizer, unfitServer } from '../server/tokenizer'
import { sglangLoads } from './loads'
import type { SglangTraits } from './traits'
import { continueGeneration } from './weights'

/** Milliseconds without an answer to a generation after which the server is taken to be paused. */
const stillMs = 1000
/** Number of tokens of --context-length that SGLang keeps for itself: scheduler.py, max_req_input_len. */
const keptTokens = 6

/**
 * Probes a server. @throws TroupeError engine.lost and engine.timeout if it does not answer; engine.failed if its
 * answer is not that of an SGLang server; engine.unfit (not retriable) if it does not fit the run
 */
export async function probeSglang(http: ServerHttp, expected: ServerExpectation): Promise<SglangTraits> {
  const { url } = http
  const info = await eitherOf(http, '/server_info', '/get_server_info')
  const model = await eitherOf(http, '/model_info', '/get_model_info')
  if (model.is_generation === false)
    throw unfit(url, "the server's model generates no text", "start the server with the run's model")
  const { servedName, contextTokens } = await contextOf(http, info)
  checkContext(
    nameOf(url),
    contextTokens,
    expected,
    'start the server with a longer --context-length (SGLang keeps some of it)',
  )
  checkPreferred(url, info.preferred_sampling_params)
  if (expected.trained) await awaken(http)
  await checkVocabulary(http, expected.vocabulary)
  if (info.skip_tokenizer_init !== true) {
    await checkTokenizer(nameOf(url), expected, ids =>
      detokenized(http, { tokens: Array.from(ids), skip_special_tokens: false }, 'text'),
    )
  }
  const takesStreamInterval =
    info.incremental_streaming_output !== true && (await askWith(http, { stream_interval: 1 })).takes
  const { processedLogprobs, meta } = await logprobsOf(http)
  const tellsSpans = Array.isArray(meta.weight_versions)
  const takesWeights = typeof meta.weight_version === 'string' && (await hasWeightEndpoints(http))
  if (expected.trained && !processedLogprobs) {
    throw unfit(url, rawLogprobs, 'start the server without SGLANG_RETURN_ORIGINAL_LOGPROB in its environment')
  }
  if (expected.trained && !takesWeights) {
    const differs =
      'the server has no endpoints to pause it and to load new weights, or its answers do not name the weights'
    throw unfit(
      url,
      differs,
      'use a version of SGLang with /pause_generation, /update_weights_from_disk and weight_version',
    )
  }
  const loads = await sglangLoads(http)
  const kvTokens = loads.kvTokens || Number(info.max_total_num_tokens)
  if (!Number.isInteger(kvTokens) || kvTokens < 1)
    throw garbage(url, "the server's info does not report max_total_num_tokens")
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

/** Asks `path`, or `older` if the answer is 404: older servers have the path with `get_` before its name. */
async function eitherOf(http: ServerHttp, path: string, older: string): Promise<Readonly<Record<string, unknown>>> {
  const reply = await http.get(path, askMs)
  return reply.status === 404
    ? objectOf(http.url, older, await http.get(older, askMs))
    : objectOf(http.url, path, reply)
}

async function contextOf(http: ServerHttp, info: Readonly<Record<string, unknown>>) {
  const [card] = await modelCards(http)
  const length = wholeNumber(card?.max_model_len)
  if (typeof card?.id !== 'string' || length === undefined) {
    throw garbage(http.url, '/v1/models names no model with a max_model_len')
  }
  // A prompt longer than max_req_input_len would be cut short.
  const longest = wholeNumber(info.max_req_input_len) ?? length - keptTokens
  return { servedName: card.id, contextTokens: Math.min(length, longest) }
}

/**
 * Refuses a server whose --preferred-sampling-params set a parameter that Troupe's requests do not set: it would
 * change the sampling.
 */
function checkPreferred(url: string, preferred: unknown): void {
  const fields = typeof preferred === 'object' && preferred !== null ? Object.keys(preferred) : []
  const said = new Set(
    'max_new_tokens min_new_tokens temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty stop_token_ids ignore_eos n skip_special_tokens spaces_between_special_tokens no_stop_trim'.split(
      ' ',
    ),
  )
  const foreign = fields.filter(name => !said.has(name))
  if (foreign.length === 0) return
  const differs = `the server adds sampling parameters of its own to each request: ${foreign.join(', ')}`
  throw unfit(url, differs, 'start the server without --preferred-sampling-params')
}

/**
 * Checks the vocabulary's size with a logit bias of 0 on token id -1. A server that checks ids refuses it and names the
 * range of ids; a server that does not applies it to the last id, which changes nothing; its vocabulary stays
 * unchecked. An id beyond the vocabulary would be a memory error on a GPU.
 */
async function checkVocabulary(http: ServerHttp, vocabulary: number): Promise<void> {
  const { takes, text } = await askWith(http, { logit_bias: { '-1': 0 } })
  const last = /\[0, (\d+)\]/.exec(takes ? '' : text)?.[1]
  if (last === undefined || Number(last) + 1 === vocabulary) return
  const differs = `the server's vocabulary has ${Number(last) + 1} ids, the model's has ${vocabulary}`
  throw unfit(http.url, differs, modelHint)
}

/**
 * Resumes a server that answers no generation within a second: a run that died during a weight update left it paused,
 * and no endpoint reports that. Resuming changes nothing if the server is only slow. Only a run that trains may resume
 * it: no other run changes the server's weights, so a pause is left over from a process that died.
 */
async function awaken(http: ServerHttp): Promise<void> {
  const timer = setTimeout(() => void continueGeneration(http).catch(() => {}), stillMs) // an error is ignored: the generation below reports it
  try {
    await ask(http, {})
  } finally {
    clearTimeout(timer)
  }
}

type Meta = Readonly<Record<string, unknown>>

/** Checks the server's logprobs; also returns the metadata of the last answer. */
async function logprobsOf(http: ServerHttp): Promise<{ processedLogprobs: boolean; meta: Meta }> {
  let meta: Meta = {}
  const processedLogprobs = await givesProcessedLogprobs(http.url, async temperature => {
    const { meta_info } = objectOf(http.url, '/generate', await ask(http, { temperature }))
    meta = (meta_info ?? {}) as Meta
    const first = (meta.output_top_logprobs as unknown[] | undefined)?.[0] as [number, number, unknown][] | undefined
    return (first ?? []).map(([logprob, token]) => [token, logprob] as const)
  })
  return { processedLogprobs, meta }
}

/**
 * Checks that the endpoints exist without using them: a POST-only endpoint refuses GET with 405, an update without a
 * path is refused.
 */
async function hasWeightEndpoints(http: ServerHttp): Promise<boolean> {
  const path = '/update_weights_from_disk'
  const update = await http.post(path, {}, askMs)
  if (isMissing(update)) return false
  isTaken(http.url, path, update) // a server that accepts or refuses the request has the endpoint; any other status throws
  return (await takesPost(http, '/pause_generation')) && (await takesPost(http, '/continue_generation'))
}

async function takesPost(http: ServerHttp, path: string): Promise<boolean> {
  const reply = await http.get(path, askMs)
  if (reply.status === 404) return false
  if (reply.status !== 405) isTaken(http.url, path, reply)
  return true
}

/**
 * Sends a generation with a field that older servers do not know. Such a server answers 500 every time, but only
 * because of the field; that is checked with a generation without it.
 */
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

const nameOf = (url: string) => `SGLang server at ${url}`

const unfit = (url: string, differs: string, hint: string) => unfitServer(nameOf(url), differs, hint)
