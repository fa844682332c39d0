/**
 * One leg of a generation on an SGLang server: the request's body, and what each event of its stream adds.
 *
 * in   a context and how to sample, then the `data:` lines
 * out  a body that sets every sampling field; tokens, logprobs, labels of weights
 * Invariant: each token comes with its own logprob, finite and at most 0 (0.001 for rounding), else `engine.failed`.
 * Tokens are those of output_token_logprobs, which has the stop token; output_ids may lack it. Only the last event says
 * which weights sampled which tokens (weight_versions): any other event has the label of the weights which the server
 * had when it sent the event, and a token that was sampled before an update may be sent after it.
 * Source: GenerateReqInput in srt/managers/io_struct.py, SamplingParams in srt/sampling/sampling_params.py,
 * _handle_batch_output in srt/managers/tokenizer_manager.py of sgl-project/sglang.
 */
import type { Sampling } from '../../../messages/facts'
import type { TroupeError } from '../../../runtime/errors'
import { excerpt } from '../../../runtime/secrets/knownSecrets'
import { checkSampled } from '../checkSampled'
import { countOf, type EventError, eventErrorOf, eventOf, garbage } from '../server/reply'
import { refused } from '../server/request'
import type { SglangTraits } from './traits'

export interface SglangLeg {
  /**
   * Id of the request. No id of a running request may begin with another request's id: an abort of that one would end
   * both.
   */
  readonly rid: string
  readonly context: readonly number[]
  readonly maxTokens: number
  readonly sampling: Sampling
  readonly seed: number
  readonly priority: number
}

/** Upper bound on the events per leg, requested by `stream_interval` if every event repeats all earlier tokens. */
const eventsOfRepeating = 64

export function generateBody(traits: SglangTraits, leg: SglangLeg): object {
  const { temperature, topP, topK, minP, stopTokens } = leg.sampling
  return {
    rid: leg.rid,
    input_ids: leg.context,
    sampling_params: {
      max_new_tokens: leg.maxTokens,
      min_new_tokens: 0,
      temperature,
      top_p: topP,
      top_k: topK === 0 ? -1 : topK,
      min_p: minP,
      frequency_penalty: 0,
      presence_penalty: 0,
      repetition_penalty: 1,
      stop_token_ids: stopTokens,
      // With ignore_eos SGLang ignores every stop token, so it is false if the request has stop tokens. Then the end
      // tokens of the model's files end a leg, too.
      ignore_eos: stopTokens.length === 0,
      n: 1,
      skip_special_tokens: false,
      spaces_between_special_tokens: false,
      no_stop_trim: true,
      ...(traits.takesSeed ? { sampling_seed: leg.seed } : {}),
      ...(traits.takesStreamInterval
        ? { stream_interval: Math.max(1, Math.ceil(leg.maxTokens / eventsOfRepeating)) }
        : {}),
    },
    return_logprob: true,
    logprob_start_len: -1,
    top_logprobs_num: 0,
    return_text_in_logprobs: false,
    stream: true,
    // In Troupe the smallest priority value is the oldest request, which runs first.
    ...(traits.prioritySign === 0 ? {} : { priority: traits.prioritySign === -1 ? leg.priority : -leg.priority }),
  }
}

export interface SglangPiece {
  readonly tokens: readonly number[]
  readonly logprobs: readonly number[]
  /** [n] server's label of the weights for each token; provisional until the last event. */
  readonly labels: readonly string[]
  /** Labels of all tokens of the leg, if the event has them: only the last one does. */
  readonly legLabels: readonly string[] | null
  /** Reason for the end of the leg; null if more events follow. */
  readonly finish: 'stop' | 'length' | 'aborted' | null
  readonly cachedTokens: number | null
  readonly retractions: number
}

interface Event {
  readonly error?: EventError
  readonly meta_info?: {
    readonly finish_reason?: {
      readonly type?: string
      readonly matched?: number | string
      readonly message?: string
      readonly status_code?: number | null
    } | null
    readonly completion_tokens?: number
    readonly cached_tokens?: number
    readonly weight_version?: string | null
    readonly weight_versions?: readonly { readonly version: string; readonly start: number; readonly end: number }[]
    readonly num_retractions?: number
    readonly output_token_logprobs?: readonly (readonly [number | null, number, string | null])[]
  }
}

/**
 * Parses one event; earlier events of the leg had `taken` tokens. @throws TroupeError engine.context_exceeded if the
 * server says that the context is too long; engine.failed if the event is not valid or reports another error
 */
export function pieceOfEvent(url: string, vocabulary: number, taken: number, line: string): SglangPiece {
  const event = eventOf<Event>(url, line)
  if (Array.isArray(event)) throw garbage(url, `an event of the stream holds no object: '${excerpt(line)}'`)
  const error = event.error ?? null
  if (error !== null) throw refusedBySglang(url, 400, eventErrorOf(error))
  const meta = event.meta_info
  if (typeof meta !== 'object' || meta === null)
    throw garbage(url, `an event of the stream comes without meta_info: '${excerpt(line)}'`)
  const reason = meta.finish_reason ?? null
  // A request that the scheduler refused or gave up ends with the type `abort` and a status.
  if (reason?.type === 'abort' && typeof reason.status_code === 'number') {
    throw refusedBySglang(url, reason.status_code, reason.message ?? '')
  }
  // SGLang reports a matched text instead of a token if it ends a request because its batch contains NaN.
  if (reason?.type === 'stop' && typeof reason.matched === 'string') {
    throw garbage(
      url,
      `the answer stopped at the text '${reason.matched}', although the request has no stop texts; SGLang says so, too, if a batch contains NaN`,
    )
  }
  const finish = reason === null ? null : finishes[reason.type ?? '']
  if (finish === undefined)
    throw garbage(url, `the server ended a generation with '${reason?.type}', a reason that Troupe does not know`)
  const fresh = freshOf(url, meta.output_token_logprobs, meta.completion_tokens, taken, finish)
  const pairs: readonly (readonly unknown[])[] = fresh.map(entry => (Array.isArray(entry) ? entry : []))
  const [tokens, logprobs] = [pairs.map(([, token]) => token), pairs.map(([logprob]) => logprob)]
  checkSampled(tokens, logprobs, vocabulary, what => garbage(url, what))
  const last = fresh.at(-1)?.[1]
  if (reason?.type === 'stop' && typeof reason.matched === 'number' && last !== undefined && last !== reason.matched) {
    throw garbage(url, `the answer stopped at token ${reason.matched}, but its last token is ${last}`)
  }
  return {
    tokens: fresh.map(([, token]) => token),
    logprobs: fresh.map(([logprob]) => logprob as number),
    labels: fresh.map((_, i) => labelOf(meta, taken + i)),
    legLabels: Array.isArray(meta.weight_versions)
      ? Array.from({ length: taken + fresh.length }, (_, i) => labelOf(meta, i))
      : null,
    finish,
    cachedTokens: countOf(url, 'cached_tokens', meta.cached_tokens),
    retractions: countOf(url, 'num_retractions', meta.num_retractions) ?? 0,
  }
}

const finishes: Readonly<Record<string, SglangPiece['finish']>> = { stop: 'stop', length: 'length', abort: 'aborted' }

type Entries = NonNullable<NonNullable<Event['meta_info']>['output_token_logprobs']>

/**
 * Returns the entries of the tokens that earlier events did not have. Servers repeat all tokens in each event, or send
 * only the new ones (--incremental-streaming-output); the total number tells which. A request that was aborted in the
 * queue has no entries.
 */
function freshOf(
  url: string,
  entries: Entries | undefined,
  completed: number | undefined,
  taken: number,
  finish: SglangPiece['finish'],
): Entries {
  if (entries === undefined && finish === 'aborted') return []
  if (!Array.isArray(entries) || !Number.isInteger(completed)) {
    throw garbage(url, 'an event of the stream comes without output_token_logprobs or completion_tokens')
  }
  if (entries.length === completed && completed >= taken) return entries.slice(taken)
  if (entries.length + taken === completed) return entries
  throw garbage(
    url,
    `an event reports ${completed} tokens, ${taken} of them received before, with ${entries.length} logprobs`,
  )
}

function labelOf(meta: NonNullable<Event['meta_info']>, position: number): string {
  const span = meta.weight_versions?.find(({ start, end }) => position >= start && position < end)
  return String(span?.version ?? meta.weight_version ?? '')
}

const tooLong = /context length|maximum allowed length|is too long/i

export const refusedBySglang = (url: string, status: number, message: string): TroupeError =>
  refused(url, status, message, tooLong)
