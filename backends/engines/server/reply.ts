/**
 * Interprets an inference server's reply: a JSON object, an event of a stream, a refusal, or something else.
 *
 * in   a status and a text        out  the requested content, or a coded error
 * Invariant: only 400 and 422 mean that the server looked at the request and refuses it; only 404, 405 and 501 mean that an
 * endpoint is missing. A server that wants a key, is busy or fails has told nothing of either: `engine.failed`, retriable.
 */
import { TroupeError } from '../../../runtime/errors'

export interface Reply {
  readonly status: number
  readonly text: string
}

/** Error of an answer that such a server cannot give. Retrying may help: another process may listen there soon. */
export const garbage = (url: string, what: string): TroupeError =>
  failed(
    `${url} does not answer as its kind of server does: ${what}`,
    'check that --engine names the address and the kind of the server: vllm, sglang or openai',
  )

const failed = (message: string, hint: string): TroupeError =>
  new TroupeError('engine.failed', { boundary: 'engine', retriable: true, message, hint })

export const wantsKey = (status: number): boolean => status === 401 || status === 403
export const keyHint = 'name the environment variable with its --api-key in engine.apiKey'

/** Error of a status that does not answer the request. */
export function unanswered(url: string, path: string, { status, text }: Reply): TroupeError {
  const said = `${path} says ${status}: ${messageOf(text)}`
  if (wantsKey(status)) return failed(`${url} wants a key: ${said}`, keyHint)
  if (status === 429 || status >= 500) return failed(`${url} is busy or fails: ${said}`, 'look at its load and its log')
  return garbage(url, said)
}

/**
 * True if the request was accepted; false if the server looked at it and refuses it. @throws TroupeError engine.failed
 */
export function isTaken(url: string, path: string, reply: Reply): boolean {
  if (reply.status === 200) return true
  if (reply.status === 400 || reply.status === 422) return false
  throw unanswered(url, path, reply)
}

/** True if the server has no such endpoint. */
export const isMissing = ({ status }: Reply): boolean => status === 404 || status === 405 || status === 501

/** Parses the reply's JSON object. @throws TroupeError engine.failed if it is not one */
export function objectOf(url: string, path: string, reply: Reply): Readonly<Record<string, unknown>> {
  if (reply.status !== 200) throw unanswered(url, path, reply)
  try {
    const value: unknown = JSON.parse(reply.text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch {
    // reported below
  }
  throw garbage(url, `${path} gives no JSON object but '${reply.text.slice(0, 100)}'`)
}

/** Parses one event of a stream. @throws TroupeError engine.failed */
export function eventOf<E extends object>(url: string, line: string): E {
  let event: unknown
  try {
    event = JSON.parse(line)
  } catch {
    throw garbage(url, `an event that is no JSON: '${line.slice(0, 100)}'`)
  }
  if (typeof event === 'object' && event !== null) return event as E
  throw garbage(url, `an event that is no object: '${line.slice(0, 100)}'`)
}

/** Error field of an event; null means no error. */
export type EventError = { readonly message?: string } | string | null

export const eventErrorOf = (error: EventError): string =>
  (typeof error === 'string' ? error : error?.message) ?? JSON.stringify(error)

/** Parses an event of /v1/completions, which may report a failed generation. @throws TroupeError engine.failed */
export function completionEventOf<E extends { readonly error?: EventError }>(url: string, line: string): E {
  const event = eventOf<E>(url, line)
  const error = event.error ?? null
  if (error !== null) throw garbage(url, `it failed: ${eventErrorOf(error)}`)
  return event
}

/**
 * Reads a count; null if the server does not give it. @throws TroupeError engine.failed if it is not a whole number from 0 on
 */
export function countOf(url: string, name: string, value: unknown): number | null {
  if (value === undefined || value === null) return null
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw garbage(url, `${name} is ${JSON.stringify(value)}`)
}

/** Reads a time, ms; null if the server does not give it. @throws TroupeError engine.failed if it is not a time */
export function timeOf(url: string, name: string, value: unknown): number | null {
  if (value === undefined || value === null) return null
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
  throw garbage(url, `${name} is ${JSON.stringify(value)}`)
}

/** Text of a server's error object, or the beginning of what came instead. */
export function messageOf(text: string): string {
  try {
    const { error, message } = JSON.parse(text) as { error?: { message?: string } | string; message?: string }
    const said = typeof error === 'string' ? error : (error?.message ?? message)
    if (typeof said === 'string') return said
  } catch {
    // not JSON: shown as it is
  }
  return text.slice(0, 300)
}
