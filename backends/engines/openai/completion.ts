/**
 * One completion of an OpenAI-compatible server: the request's body, and what each event of its stream adds.
 *
 * in   a prompt as text and how to sample, then the `data:` lines
 * out  a body of OpenAI's own fields; pieces of text
 * Invariant: only fields of OpenAI's reference are sent. Options that the API lacks (top_k, min_p, more than four
 * stops) are refused and not left out, because the answer would be sampled from another distribution.
 * Source: OpenAI's API reference, "Create completion".
 */

import { excerpt } from '../../../runtime/secrets/knownSecrets'
import type { GenerateRequest } from '../engine'
import { completionEventOf, type EventError, garbage } from '../server/reply'
import { badRequest } from '../server/request'

const mostStops = 4

/**
 * Builds the body of a completion request. @throws TroupeError engine.bad_request if top_k or min_p is above 0, or
 * there are more than four stop texts
 */
export function openaiBody(
  model: string,
  prompt: string,
  stop: readonly string[],
  { sampling, seed }: GenerateRequest,
  maxTokens: number,
): object {
  const { temperature, topP, topK, minP } = sampling
  if (topK > 0 || minP > 0) throw badRequest('the OpenAI API does not support top_k and min_p: set them to 0')
  const stops = [...new Set(stop)].filter(text => text !== '')
  if (stops.length > mostStops)
    throw badRequest(`the OpenAI API takes at most ${mostStops} stop texts, but the model has ${stops.length}`)
  return {
    model,
    prompt,
    max_tokens: maxTokens,
    temperature,
    top_p: topP,
    n: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    seed,
    ...(stops.length === 0 ? {} : { stop: stops }),
    stream: true,
  }
}

interface Event {
  readonly error?: EventError
  readonly choices?: readonly { readonly text?: unknown; readonly finish_reason?: unknown }[]
}

/**
 * Parses one event of the stream. @throws TroupeError engine.failed if it is not an event of a completion, or reports
 * an error
 */
export function completionOf(url: string, line: string): { text: string; finish: 'stop' | 'length' | null } {
  const event = completionEventOf<Event>(url, line)
  const choice = event.choices?.[0]
  if (choice === undefined) return { text: '', finish: null } // an event that reports only the token usage
  const { text, finish_reason: finish = null } = choice
  if (typeof text !== 'string') throw garbage(url, `a choice of the answer has no text: '${excerpt(line)}'`)
  if (finish !== null && finish !== 'stop' && finish !== 'length')
    throw garbage(url, `the answer ended with '${finish}', expected 'stop' or 'length'`)
  return { text, finish }
}
