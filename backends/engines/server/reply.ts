/**
 * Interprets an inference server's reply: a JSON object, an event of a stream, a refusal, or something else.
 *
 * in   a status and a text        out  the requested content, or a coded error
 * Invariant: only 400 and 422 mean that the server looked at the request and refuses it; only 404, 405 and 501 mean
 * that an endpoint is missing. A server that wants a key, is busy or fails has said nothing about request or endpoint:
 * `engine.failed`, retriable.
 */
import { TroupeError } from '../../../runtime/errors'
import { excerpt, redactSecrets } from '../../../runtime/secrets/knownSecrets'

export interface Reply {
  readonly status: number
  readonly text: string
}

/**
 * Error for an answer that an inference server of this kind never gives. Retrying may help: the right process may
 * listen there later.
 */
export const garbage = (url: string, what: string): TroupeError =>
  failed(
    `unexpected answer from ${url}: ${what}`,
    'check that the address (--engine, engine.urls) is that of a server of this kind (vllm, sglang or openai), and see its log',
  )

const failed = (message: string, hint: string): TroupeError =>
  new TroupeError('engine.failed', { boundary: 'engine', retriable: true, message, hint })

export const wantsKey = (status: number): boolean => status === 401 || status === 403
export const keyHint = 'set engine.apiKey to the name of the environment variable that holds its --api-key'

/** Error for a status with which the server neither accepts nor refuses the request. */
export function unanswered(url: string, path: string, { status, text }: Reply): TroupeError {
  const said = `${path} says ${status}: ${messageOf(text)}`
  if (wantsKey(status)) return failed(`${url} requires an API key: ${said}`, keyHint)
  if (status === 429 || status >= 500)
    return failed(`${url} is overloaded or failing: ${said}`, 'check the load of the server and its log')
  return garbage(url, said)
}

/**
 * Returns true if the server accepted the request, false if it refused it (400, 422). @throws TroupeError engine.failed
 * for any other status than 200
 */
export function isTaken(url: string, path: string, reply: Reply): boolean {
  if (reply.status === 200) return true
  if (reply.status === 400 || reply.status === 422) return false
  throw unanswered(url, path, reply)
}

/** True if the status (404, 405, 501) says that the server does not have the requested endpoint. */
export const isMissing = ({ status }: Reply): boolean => status === 404 || status === 405 || status === 501

/** Parses the reply's JSON object. @throws TroupeError engine.failed if it is not one */
export function objectOf(url: string, path: string, reply: Reply): Readonly<Record<string, unknown>> {
  if (reply.status !== 200) throw unanswered(url, path, reply)
  try {
    const value: unknown = JSON.parse(reply.text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch {
    // the text is not JSON: the error is thrown below
  }
  throw garbage(url, `${path} returned no JSON object but '${excerpt(reply.text)}'`)
}

/** Parses one event of a stream. @throws TroupeError engine.failed if it is neither a JSON object nor an array */
export function eventOf<E extends object>(url: string, line: string): E {
  let event: unknown
  try {
    event = JSON.parse(line)
  } catch {
    throw garbage(url, `an event of the stream holds no JSON: '${excerpt(line)}'`)
  }
  if (typeof event === 'object' && event !== null) return event as E
  throw garbage(url, `an event of the stream holds no object: '${excerpt(line)}'`)
}

/** Error field of a stream's event; null means no error. */
export type EventError = { readonly message?: string } | string | null

export const eventErrorOf = (error: EventError): string =>
  (typeof error === 'string' ? error : error?.message) ?? JSON.stringify(error)

/**
 * Parses an event of /v1/completions. @throws TroupeError engine.failed if it is not a JSON object, or reports a failed
 * generation
 */
export function completionEventOf<E extends { readonly error?: EventError }>(url: string, line: string): E {
  const event = eventOf<E>(url, line)
  const error = event.error ?? null
  if (error !== null) throw failed(`${url}: the generation failed: ${eventErrorOf(error)}`, "see the server's log")
  return event
}

/**
 * Reads a count; null if the server does not report it. @throws TroupeError engine.failed if the value is not a whole
 * number from 0 on
 */
export function countOf(url: string, name: string, value: unknown): number | null {
  if (value === undefined || value === null) return null
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw garbage(url, `${name} is ${JSON.stringify(value)}, expected a whole number of at least 0`)
}

/**
 * Reads a duration in milliseconds; null if the server does not report it. @throws TroupeError engine.failed if it is
 * not one
 */
export function timeOf(url: string, name: string, value: unknown): number | null {
  if (value === undefined || value === null) return null
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
  throw garbage(url, `${name} is ${JSON.stringify(value)}, expected a duration in ms of at least 0`)
}

/**
 * Returns the message in a server's JSON error, without known secrets; the first 300 characters of the text if it is
 * not such an error. Used in error messages only, never to parse the reply.
 */
export function messageOf(text: string): string {
  try {
    const { error, message } = JSON.parse(text) as { error?: { message?: string } | string; message?: string }
    const said = typeof error === 'string' ? error : (error?.message ?? message)
    if (typeof said === 'string') return redactSecrets(said)
  } catch {
    // the text is not JSON, so its beginning is returned
  }
  return excerpt(text, 300)
}
