/**
 * Checks request bodies against SGLang's documented HTTP API: every field must be documented and in range.
 *
 * in   a path, a body        out  undefined, or the first fault
 * Invariant: a body that sgl-project/sglang does not document is refused. The real server accepts more: it ignores
 * unknown fields.
 * Sources: [io] python/sglang/srt/managers/io_struct.py, [sp] python/sglang/srt/sampling/sampling_params.py (fields and
 * `verify`), [rl] docs/advanced_features/sglang_for_rl.md, [doc] docs/basic_usage/sampling_params.md, [http]
 * python/sglang/srt/entrypoints/http_server.py, [tok] .../openai/protocol.py, [tm]
 * python/sglang/srt/managers/tokenizer_manager.py.
 */
import { vocabulary } from './hashModel'

type Check = (value: unknown) => string | undefined
type Fields = Readonly<Record<string, Check>>

const isInt = (value: unknown): value is number => Number.isSafeInteger(value)
const bool: Check = value => (typeof value === 'boolean' ? undefined : 'is no bool')
const text: Check = value => (typeof value === 'string' && value !== '' ? undefined : 'is no str')
const int =
  (least: number, most = Number.MAX_SAFE_INTEGER): Check =>
  value =>
    isInt(value) && value >= least && value <= most ? undefined : `is no int in [${least}, ${most}]`
const float =
  (least: number, most: number, open = false): Check =>
  value =>
    typeof value === 'number' && Number.isFinite(value) && value <= most && (open ? value > least : value >= least)
      ? undefined
      : `must be in ${open ? '(' : '['}${least}, ${most}], got ${JSON.stringify(value)}`
const ids: Check = value =>
  Array.isArray(value) && value.every(id => isInt(id) && id >= 0 && id < vocabulary)
    ? undefined
    : `is no list of ids in [0, ${vocabulary})`
const tags: Check = value =>
  Array.isArray(value) && value.length > 0 && value.every(tag => tag === 'kv_cache' || tag === 'weights')
    ? undefined
    : "is no list of 'kv_cache' and 'weights'" // [rl] "Release Memory"
const oneOf =
  (...values: readonly unknown[]): Check =>
  value =>
    values.includes(value) ? undefined : `is none of ${values.join(', ')}`

/** Fields of [sp] SamplingParams with the ranges that its `verify` checks; the others are checked by type only. */
const samplingFields: Fields = {
  max_new_tokens: int(0),
  min_new_tokens: int(0),
  temperature: float(0, Number.MAX_VALUE),
  top_p: float(0, 1, true),
  // [sp] verify: -1 (disable) or at least 1; [doc] "Core parameters"
  top_k: value => (value === -1 ? undefined : int(1)(value)),
  min_p: float(0, 1),
  frequency_penalty: float(-2, 2),
  presence_penalty: float(-2, 2),
  repetition_penalty: float(0, 2, true),
  stop_token_ids: ids,
  ignore_eos: bool,
  n: oneOf(1), // [doc] "n > 1 is discouraged"
  skip_special_tokens: bool,
  spaces_between_special_tokens: bool,
  no_stop_trim: bool,
  sampling_seed: int(0), // [sp]; has an effect only with --enable-deterministic-inference
  stream_interval: int(1), // [sp], newer versions
  logit_bias: value => {
    if (typeof value !== 'object' || value === null) return 'is no dict'
    const beyond = Object.keys(value).find(key => !(Number(key) >= 0 && Number(key) < vocabulary))
    // The message of [sp] verify, word for word: the engine reads the vocabulary's size from it.
    return beyond === undefined ? undefined : `logit_bias must has keys in [0, ${vocabulary - 1}], got ${beyond}.`
  },
}

/** Fields of [io] GenerateReqInput. */
const generateFields: Fields = {
  input_ids: ids,
  sampling_params: value => (typeof value === 'object' && value !== null ? undefined : 'is no dict'),
  rid: text,
  return_logprob: bool,
  logprob_start_len: oneOf(-1), // [io] "only return logprobs for output tokens"
  top_logprobs_num: int(0, 20),
  return_text_in_logprobs: bool,
  stream: bool,
  priority: int(-Number.MAX_SAFE_INTEGER),
}

export interface Endpoint {
  readonly methods: readonly string[]
  readonly fields: Fields
  readonly required: readonly string[]
}

const get: Endpoint = { methods: ['GET'], fields: {}, required: [] }
const post = (fields: Fields, ...required: readonly string[]): Endpoint => ({ methods: ['POST'], fields, required })

/** Routes of [http], with their methods and the checks of their bodies. */
export const endpoints: Readonly<Record<string, Endpoint>> = {
  '/ping': get,
  '/server_info': get,
  '/get_server_info': get, // deprecated, but still served
  '/model_info': get,
  '/get_model_info': get,
  '/v1/models': get,
  '/v1/loads': get,
  '/get_load': get,
  '/generate': { ...post(generateFields, 'input_ids'), methods: ['POST', 'PUT'] },
  '/abort_request': post({ rid: text, abort_all: bool }), // [io] AbortReq
  '/pause_generation': post({ mode: oneOf('abort', 'retract', 'in_place') }), // [io] PauseGenerationReqInput
  '/continue_generation': post({ torch_empty_cache: bool }), // [io] ContinueGenerationReqInput
  // [io] UpdateWeightFromDiskReqInput, [rl] "Update Weights from Disk"
  '/update_weights_from_disk': post(
    {
      model_path: text,
      load_format: text,
      abort_all_requests: bool,
      weight_version: text,
      is_async: bool,
      torch_empty_cache: bool,
      keep_pause: bool,
      recapture_cuda_graph: bool,
      token_step: int(0),
      flush_cache: bool,
    },
    'model_path',
  ),
  '/flush_cache': { ...post({}), methods: ['GET', 'POST'] }, // the timeout is in the query
  '/release_memory_occupation': { ...post({ tags }), methods: ['GET', 'POST'] }, // [rl] "Release Memory"
  '/resume_memory_occupation': { ...post({ tags }), methods: ['GET', 'POST'] }, // [rl] "Resume Memory"
  '/detokenize': post({ tokens: ids, skip_special_tokens: bool, model: text }, 'tokens'), // [tok] DetokenizeRequest
}

export interface Verdict {
  /** The fault in words. */
  readonly reason: string
  /**
   * true: the API does not document such a body. false: the API documents that the server refuses it, with this reason.
   */
  readonly undocumented: boolean
}

export function judgeBody({ fields, required }: Endpoint, body: unknown): Verdict | undefined {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    return { reason: 'the body is no JSON object', undocumented: true }
  }
  const missing = required.find(name => !(name in body))
  if (missing !== undefined) return { reason: `Field required: ${missing}`, undocumented: false }
  return judge(fields, body)
}

export function judgeSampling(params: object): Verdict | undefined {
  const found = judge(samplingFields, params)
  if (found !== undefined)
    return { ...found, undocumented: found.undocumented && !/^logit_bias must/.test(found.reason) }
  const { min_new_tokens: least = 0, max_new_tokens: most = 128 } = params as Record<string, number>
  return least <= most
    ? undefined
    : { reason: `min_new_tokens must be in [0, max_new_tokens(${most})]`, undocumented: true }
}

function judge(fields: Fields, body: object): Verdict | undefined {
  for (const [name, value] of Object.entries(body)) {
    const check = fields[name]
    if (check === undefined) return { reason: `unexpected field '${name}'`, undocumented: true }
    const wrong = check(value)
    if (wrong !== undefined)
      return { reason: wrong.startsWith('logit_bias') ? wrong : `${name} ${wrong}`, undocumented: true }
  }
  return undefined
}
