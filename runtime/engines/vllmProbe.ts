/**
 * What a vLLM server can do, found out by asking it: nothing is taken from its version number.
 *
 * in   a server, and what the run expects of it        out  traits; or a refusal that says what differs
 * Invariant: a server that a run cannot be trained on is refused before its first turn: another vocabulary, another
 * tokenizer, too short a context, logprobs that are not those of the distribution sampled from, no way to give it weights.
 */
import type { ServerExpectation } from './serverExpectation'
import type { ServerHttp } from './serverHttp'
import { garbage, isMissing, isTaken, messageOf, objectOf, type Reply, unanswered } from './serverReply'
import { checkTokenizer, unfitServer } from './serverTokenizer'
import { loadPath } from './vllmAdapters'
import { vllmMetrics } from './vllmMetrics'

export interface VllmExpectation extends ServerExpectation {
  /** The head is the embedding: on CPUs, vLLM 0.32 alone keeps an old one when weights change. */
  readonly tiedHead: boolean
}

export interface VllmTraits {
  readonly version: string
  /** The name that requests give. */
  readonly servedName: string
  readonly kvTokens: number
  readonly blockTokens: number
  readonly prefixSharing: boolean
  readonly contextTokens: number
  readonly maxSequences: number
  /** -1: requests with the largest `priority` are preempted first; 0: the server was not started to look at it. */
  readonly prioritySign: -1 | 0
  /** Logprobs come after temperature and truncation. */
  readonly processedLogprobs: boolean
  /** The endpoints of development mode are there: pause, new weights, reset of the prefix cache. */
  readonly takesWeights: boolean
  /** The run trains adapters, and the server loads some while it runs. */
  readonly takesAdapters: boolean
  /** Requests may carry a seed. On CPUs a seeded request that is prefilled in chunks ends vLLM 0.32. */
  readonly takesSeed: boolean
}

const askMs = 30_000
/** A first generation compiles and warms up. */
const generateMs = 120_000

/** @throws TroupeError engine.lost, engine.timeout, engine.failed; engine.unfit (not retriable) */
export async function probeVllm(http: ServerHttp, expected: VllmExpectation): Promise<VllmTraits> {
  const { url } = http
  const version = String(objectOf(url, '/version', await http.get('/version', askMs)).version ?? '')
  const { servedName, contextTokens } = await modelOf(http)
  if (contextTokens < expected.contextTokens) {
    const differs = `its contexts have at most ${contextTokens} tokens, the recipe's limits.contextTokens is ${expected.contextTokens}`
    throw unfit(url, differs, 'start it with a longer --max-model-len, or lower limits.contextTokens')
  }
  const metrics = await http.get('/metrics', askMs)
  if (metrics.status !== 200) throw unanswered(url, '/metrics', metrics)
  const { kvTokens, blockTokens, prefixCaching } = vllmMetrics(url, metrics.text)
  await checkVocabulary(http, servedName, expected.vocabulary)
  await checkTokenizer(`vLLM server at ${url}`, expected, ids => detokenized(http, servedName, ids))
  const processedLogprobs = await givesProcessedLogprobs(http, servedName)
  const { takesWeights, packsHeads, device, maxSequences, adapters } = await developmentMode(http)
  const takesAdapters = expected.adapterRank !== undefined && adapters !== null && (await loadsAdapters(http))
  if (expected.trained && !processedLogprobs) {
    const differs = 'its logprobs are not those of the distribution that it samples from'
    throw unfit(url, differs, 'start it with --logprobs-mode processed_logprobs')
  }
  if (takesAdapters && (adapters?.max_lora_rank ?? Infinity) < expected.adapterRank) {
    const differs = `its adapters have at most rank ${adapters?.max_lora_rank}, the recipe's train.lora.rank is ${expected.adapterRank}`
    throw unfit(url, differs, 'start it with a larger --max-lora-rank')
  }
  if (expected.trained && !takesWeights && !takesAdapters) {
    const hint = 'start it with VLLM_SERVER_DEV_MODE=1 in its environment, where only you can reach it'
    throw unfit(url, 'it has no endpoints to pause it and to give it new weights', hint)
  }
  if (expected.trained && !takesAdapters && expected.tiedHead && device === 'cpu' && !packsHeads) {
    const differs = 'on CPUs it would keep the head of the old weights, which in this model is tied to the embedding'
    throw unfit(url, differs, 'start it from the venv of `troupe setup vllm`, whose plugin mends that')
  }
  return {
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
  }
}

async function modelOf(http: ServerHttp): Promise<{ servedName: string; contextTokens: number }> {
  const { data } = objectOf(http.url, '/v1/models', await http.get('/v1/models', askMs))
  const models = (Array.isArray(data) ? data : []) as { id?: unknown; parent?: unknown; max_model_len?: unknown }[]
  const model = models.find(({ parent }) => parent === null || parent === undefined) // others are adapters
  if (typeof model?.id !== 'string' || typeof model.max_model_len !== 'number') {
    throw garbage(http.url, '/v1/models names no model with a max_model_len')
  }
  return { servedName: model.id, contextTokens: model.max_model_len }
}

/** The last id of ours is taken, the next one is refused. */
async function checkVocabulary(http: ServerHttp, model: string, vocabulary: number): Promise<void> {
  const takes = (reply: Reply) => isTaken(http.url, '/v1/completions', reply)
  const last = await complete(http, model, { prompt: [vocabulary - 1] })
  const hint = "start it with the run's model: what stands in the recipe's model.path, or was made for the run"
  if (!takes(last)) {
    throw unfit(http.url, `it refuses token id ${vocabulary - 1}, the model's last: ${messageOf(last.text)}`, hint)
  }
  if (takes(await complete(http, model, { prompt: [vocabulary] }))) {
    throw unfit(http.url, `its vocabulary is larger than the model's ${vocabulary}: it takes id ${vocabulary}`, hint)
  }
}

async function detokenized(http: ServerHttp, model: string, ids: Int32Array): Promise<string | undefined> {
  const reply = await http.post('/detokenize', { model, tokens: Array.from(ids) }, askMs)
  if (isMissing(reply) || !isTaken(http.url, '/detokenize', reply)) return undefined
  const { prompt } = objectOf(http.url, '/detokenize', reply)
  return typeof prompt === 'string' ? prompt : undefined
}

/**
 * At a temperature of T the differences between two tokens' logprobs are 1/T times those at 1, and they stay logprobs:
 * together not above 1. Raw logprobs do not change; logits do, but are no logprobs.
 */
async function givesProcessedLogprobs(http: ServerHttp, model: string): Promise<boolean> {
  const cold = 0.25
  const at = async (temperature: number) => {
    const asked = { prompt: [0, 1, 2, 3], temperature, logprobs: 5, return_tokens_as_token_ids: true }
    const reply = objectOf(http.url, '/v1/completions', await complete(http, model, asked))
    const [choice] = (reply.choices ?? []) as { logprobs?: { top_logprobs?: Record<string, number>[] } }[]
    return Object.entries(choice?.logprobs?.top_logprobs?.[0] ?? {})
  }
  const warm = await at(1)
  const frozen = new Map(await at(cold))
  const common = warm.filter(([token]) => frozen.has(token)).sort((a, b) => b[1] - a[1])
  const [first, last] = [common[0], common.at(-1)]
  if (first === undefined || last === undefined || first[1] - last[1] < 1e-3) {
    throw garbage(http.url, 'it gives no logprobs of the likeliest tokens')
  }
  const stretch = (frozen.get(first[0])! - frozen.get(last[0])!) / (first[1] - last[1])
  const mass = (entries: Iterable<readonly [string, number]>) =>
    [...entries].reduce((sum, [, logprob]) => sum + Math.exp(logprob), 0)
  // In bfloat16 two runs differ by a little.
  return (
    Math.abs(stretch * cold - 1) < 0.2 && mass(warm) < 1.01 && mass(frozen) < 1.01 && mass(frozen) > mass(warm) - 0.01
  )
}

async function prioritySignOf(http: ServerHttp, model: string): Promise<-1 | 0> {
  const reply = await complete(http, model, { prompt: [0], priority: 1 })
  return isTaken(http.url, '/v1/completions', reply) ? -1 : 0
}

interface Development {
  readonly takesWeights: boolean
  /** The plugin of cli/setup/vllm is at work. */
  readonly packsHeads: boolean
  readonly device?: string | undefined
  readonly maxSequences?: number | undefined
  /** null: it was started without --enable-lora. */
  readonly adapters?: { readonly max_lora_rank?: number } | null | undefined
}

/** Asked for adapters without a name, a server that loads none has no such endpoint. */
async function loadsAdapters(http: ServerHttp): Promise<boolean> {
  const reply = await http.post(loadPath, { lora_name: '', lora_path: '' }, askMs)
  return !isMissing(reply) && !isTaken(http.url, loadPath, reply)
}

/** The endpoints that an update needs; those that can be asked without changing anything are. */
async function developmentMode(http: ServerHttp): Promise<Development> {
  const paused = await http.get('/is_paused', askMs)
  if (isMissing(paused)) return { takesWeights: false, packsHeads: false }
  if (paused.status !== 200) throw unanswered(http.url, '/is_paused', paused)
  let packsHeads = false
  const info = await http.get('/server_info?config_format=json', askMs)
  let config: {
    readonly device_config?: { readonly device?: string }
    readonly scheduler_config?: { readonly max_num_seqs?: number }
    readonly lora_config?: { readonly max_lora_rank?: number } | null
  } = {}
  if (!isMissing(info) && isTaken(http.url, '/server_info', info)) {
    const { vllm_config, vllm_env } = objectOf(http.url, '/server_info', info)
    if (typeof vllm_config === 'object' && vllm_config !== null) config = vllm_config
    packsHeads = (vllm_env as Record<string, unknown> | undefined)?.VLLM_TROUPE_PACKS_HEADS === true
  }
  const device = config.device_config?.device
  const maxSequences = config.scheduler_config?.max_num_seqs
  return {
    takesWeights: true,
    packsHeads,
    device: typeof device === 'string' ? device : undefined,
    maxSequences: Number.isInteger(maxSequences) ? maxSequences : undefined,
    adapters: config.lora_config,
  }
}

const complete = (http: ServerHttp, model: string, body: object) =>
  http.post('/v1/completions', { model, max_tokens: 1, temperature: 1, top_p: 1, top_k: 0, ...body }, generateMs)

const unfit = (url: string, differs: string, hint: string) => unfitServer(`vLLM server at ${url}`, differs, hint)
