/**
 * One generation on a vLLM server: the request's body, and what each event of the stream adds.
 *
 * in   a request, then the `data:` lines
 * out  a body that sets every sampling field; pieces of tokens and logprobs
 * Invariant: one logprob for each token, finite and at most 0 (0.001 for rounding); anything else is `engine.failed`,
 * since a token without its logprob cannot be trained on. Text is not taken from the server: only the run's renderer
 * decodes.
 * Source: CompletionRequest in vllm/entrypoints/openai/completion/protocol.py of 0.32. A sampling field that is left
 * out takes the server's default, which comes from the model's generation_config: so only the seed is left out, if the
 * server cannot take one.
 */

import { checkSampled } from '../checkSampled'
import type { GenerateRequest } from '../engine'
import { completionEventOf, countOf, type EventError, garbage, timeOf } from '../server/reply'
import type { VllmTraits } from './traits'

export interface Piece {
  readonly tokens: readonly number[]
  readonly logprobs: readonly number[]
  /**
   * Reason for the end of the generation; null if more pieces follow. `aborted`: another client ended it on the server.
   */
  readonly finish: 'stop' | 'length' | 'aborted' | null
  /** Number of prompt tokens found in the prefix cache; only in the last piece, if the server reports it. */
  readonly cachedTokens: number | null
  /** Milliseconds in the server's queue; only in the last piece, if the server reports it. */
  readonly queuedMs: number | null
}

/** Builds the body of a request. `model`: name of the served model, or of an adapter to it. */
export function completionBody(
  traits: VllmTraits,
  request: Pick<GenerateRequest, 'context' | 'sampling' | 'seed' | 'priority'>,
  maxTokens: number,
  model = traits.servedName,
): object {
  const { temperature, topP, topK, minP, stopTokens } = request.sampling
  return {
    model,
    prompt: Array.from(request.context),
    max_tokens: maxTokens,
    min_tokens: 0,
    n: 1,
    temperature,
    top_p: topP,
    top_k: topK,
    min_p: minP,
    presence_penalty: 0,
    frequency_penalty: 0,
    repetition_penalty: 1,
    stop: [],
    stop_token_ids: stopTokens,
    // ignore_eos is true, so that the recipe's stop tokens end a turn, not the end tokens of the model's files.
    ignore_eos: true,
    logprobs: 0,
    return_token_ids: true,
    stream: true,
    stream_options: { include_usage: true },
    ...(traits.prioritySign === 0 ? {} : { priority: request.priority }),
    ...(traits.takesSeed ? { seed: request.seed } : {}),
  }
}

const finishes: Readonly<Record<string, Piece['finish']>> = { stop: 'stop', length: 'length', abort: 'aborted' }

export interface Event {
  readonly error?: EventError
  readonly usage?: { readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null } | null
  readonly metrics?: { readonly queue_time_ms?: number | null } | null
  readonly choices?: readonly {
    readonly token_ids?: readonly number[] | null
    readonly logprobs?: { readonly token_logprobs?: readonly (number | null)[] } | null
    readonly finish_reason?: string | null
  }[]
}

/** Parses one event of the stream. @throws TroupeError engine.failed if the event is not valid or reports an error */
export function pieceOf(url: string, vocabulary: number, line: string): Piece {
  const event = completionEventOf<Event>(url, line)
  const choice = event.choices?.[0]
  const cachedTokens = countOf(url, 'cached_tokens', event.usage?.prompt_tokens_details?.cached_tokens)
  const queuedMs = timeOf(url, 'queue_time_ms', event.metrics?.queue_time_ms)
  if (choice === undefined) return { tokens: [], logprobs: [], finish: null, cachedTokens, queuedMs }
  const tokens = choice.token_ids ?? []
  const logprobs = choice.logprobs?.token_logprobs ?? []
  checkSampled(tokens, logprobs, vocabulary, what => garbage(url, what))
  const reason = choice.finish_reason ?? null
  const finish = reason === null ? null : finishes[reason]
  if (finish === undefined)
    throw garbage(url, `the server ended a generation with '${reason}', a reason that Troupe does not know`)
  return { tokens, logprobs: logprobs as readonly number[], finish, cachedTokens, queuedMs }
}
