/**
 * GatewayError: a refusal of a call, which each dialect writes in its own form.
 *
 * in   what is wrong        out  an HTTP status, a kind, a code, and if the client's library should try again
 * Invariant: clients are told to retry after some seconds when engines are busy (429) or not available (503), and when
 * their body did not arrive in time (408). They are told not to retry anything else: faults of the gateway (500) and
 * errors that only they can correct (other 4xx).
 */
import { asError, TroupeError } from '../runtime/errors'

export type RefusalKind =
  | 'invalid'
  | 'unauthorized'
  | 'forbidden'
  | 'not-found'
  | 'conflict'
  | 'too-large'
  | 'slow'
  | 'busy'
  | 'internal'
  | 'unavailable'

const statuses: Readonly<Record<RefusalKind, number>> = {
  invalid: 400,
  unauthorized: 401,
  forbidden: 403,
  'not-found': 404,
  conflict: 409,
  slow: 408,
  'too-large': 413,
  busy: 429,
  internal: 500,
  unavailable: 503,
}

const retryAfter: Readonly<Partial<Record<RefusalKind, number>>> = { busy: 1, slow: 1, unavailable: 2 }

export interface Refusal {
  readonly kind: RefusalKind
  /** One word for programs, such as `context_length_exceeded`. */
  readonly code: string
  readonly message: string
  /** Field of the request that is at fault. */
  readonly param?: string
  readonly cause?: unknown
}

export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  readonly kind: RefusalKind
  readonly code: string
  readonly param: string | undefined
  readonly status: number

  constructor({ kind, code, message, param, cause }: Refusal) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
    this.code = code
    this.param = param
    this.status = statuses[kind]
  }

  /** Seconds after which the client may try again; undefined if that would be of no use. */
  get retryAfterSeconds(): number | undefined {
    return retryAfter[this.kind]
  }
}

export const invalid = (message: string, param?: string, code = 'invalid_request'): GatewayError =>
  new GatewayError({ kind: 'invalid', code, message, ...(param === undefined ? {} : { param }) })

export const contextExceeded = (tokens: number, most: number): GatewayError =>
  invalid(
    `This model's maximum context length is ${most} tokens, answer included, but the prompt (messages and tools) alone has ${tokens}: shorten it, or raise limits.contextTokens in the recipe and the engine's context length, if that is shorter`,
    'messages',
    'context_length_exceeded',
  )

/**
 * Converts any error to a GatewayError. Errors of engines become 503, which tells the client to retry; a context that
 * is too long and a template that refuses become 400, anything else 500.
 */
export function refusalOf(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown
  const { message } = asError(thrown)
  if (thrown instanceof TroupeError) {
    if (thrown.code === 'engine.context_exceeded') return invalid(message, 'messages', 'context_length_exceeded')
    if (thrown.code === 'render.refused') return invalid(message, 'messages', 'template_refused')
    if (thrown.boundary === 'engine')
      return new GatewayError({ kind: 'unavailable', code: thrown.code, message, cause: thrown })
  }
  return new GatewayError({ kind: 'internal', code: 'internal_error', message, cause: thrown })
}
