/**
 * What an inference server's reply comes to: a JSON object, an event of a stream, a refusal, or no answer of such a server.
 *
 * in   a status and a text        out  what was asked for, or a coded error
 * Invariant: only a server that has looked at a request refuses it (400, 422), and only one that does not have an endpoint says
 * so (404, 405, 501). Whoever wants a key, is busy or fails has said nothing about either: `engine.failed`, retriable.
 */
import { TroupeError } from '../../../runtime/errors'

export interface Reply {
  readonly status: number
  readonly text: string
}

/** What is no answer of such a server. Asking again may help: another process may listen there soon. */
export const garbage = (url: string, what: string): TroupeError =>
  failed(
    `${url} does not answer as its kind of server does: ${what}`,
    'check that --engine names the address and the kind of the server: vllm, sglang or openai',
  )

const failed = (message: string, hint: string): TroupeError =>
  new TroupeError('engine.failed', { boundary: 'engine', retriable: true, message, hint })

export const wantsKey = (status: number): boolean => status === 401 || status === 403
export const keyHint = 'name the environment variable with its --api-key in engine.apiKey'

/** A status that is no answer to what was asked. */
export function unanswered(url: string, path: string, { status, text }: Reply): TroupeError {
  const said = `${path} says ${status}: ${messageOf(text)}`
  if (wantsKey(status)) return failed(`${url} wants a key: ${said}`, keyHint)
  if (status === 429 || status >= 500) return failed(`${url} is busy or fails: ${said}`, 'look at its load and its log')
  return garbage(url, said)
}

/** Whether a request was taken. False: the server has looked at it and refuses it. @throws TroupeError engine.failed */
export function isTaken(url: string, path: string, reply: Reply): boolean {
  if (reply.status === 200) return true
  if (reply.status === 400 || reply.status === 422) return false
  throw unanswered(url, path, reply)
}

/** The server has no such endpoint. */
export const isMissing = ({ status }: Reply): boolean => status === 404 || status === 405 || status === 501

/** The reply's JSON object. @throws TroupeError engine.failed where it is none */
export function objectOf(url: string, path: string, reply: Reply): Readonly<Record<string, unknown>> {
  if (reply.status !== 200) throw unanswered(url, path, reply)
  try {
    const value: unknown = JSON.parse(reply.text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch {
    // said below
  }
  throw garbage(url, `${path} gives no JSON object but '${reply.text.slice(0, 100)}'`)
}

/** One event of a stream. @throws TroupeError engine.failed */
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

/** What an event may have as its error; null is none. */
export type EventError = { readonly message?: string } | string | null

export const eventErrorOf = (error: EventError): string =>
  (typeof error === 'string' ? error : error?.message) ?? JSON.stringify(error)

/** An event of /v1/completions, which may say that the generation failed. @throws TroupeError engine.failed */
export function completionEventOf<E extends { readonly error?: EventError }>(url: string, line: string): E {
  const event = eventOf<E>(url, line)
  const error = event.error ?? null
  if (error !== null) throw garbage(url, `it failed: ${eventErrorOf(error)}`)
  return event
}

/** What a server counts; null where it does not tell. @throws TroupeError engine.failed where it is no whole number from 0 on */
export function countOf(url: string, name: string, value: unknown): number | null {
  if (value === undefined || value === null) return null
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw garbage(url, `${name} is ${JSON.stringify(value)}`)
}

/** What a server measures, ms; null where it does not tell. @throws TroupeError engine.failed where it is no time */
export function timeOf(url: string, name: string, value: unknown): number | null {
  if (value === undefined || value === null) return null
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
  throw garbage(url, `${name} is ${JSON.stringify(value)}`)
}

/** The text of a server's error object, or the beginning of what came instead. */
export function messageOf(text: string): string {
  try {
    const { error, message } = JSON.parse(text) as { error?: { message?: string } | string; message?: string }
    const said = typeof error === 'string' ? error : (error?.message ?? message)
    if (typeof said === 'string') return said
  } catch {
    // no JSON: shown as it is
  }
  return text.slice(0, 300)
}
