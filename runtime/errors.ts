/**
 * TroupeError: an error that a program and a person can act on, with a code, a boundary, `retriable` and a hint.
 * An expected failure leaves a module of Troupe as a TroupeError; an error of another package is its `cause`.
 */

import { redactError, redactSecrets } from './secrets/knownSecrets'

/** The part of the system where the error arose. */
export type Boundary =
  | 'config'
  | 'bus'
  | 'codec'
  | 'actor'
  | 'engine'
  | 'trainer'
  | 'sandbox'
  | 'environment'
  | 'verifier'
  | 'process'
  | 'replay'
  | 'cli'

export interface ErrorDetails {
  readonly boundary: Boundary
  /** True if the same call, unchanged, may succeed later. */
  readonly retriable: boolean
  readonly message: string
  /** Advice on what a person can do next. */
  readonly hint?: string
  readonly cause?: unknown
}

export class TroupeError extends Error {
  override readonly name = 'TroupeError'
  readonly boundary: Boundary
  readonly retriable: boolean
  readonly hint: string | undefined

  constructor(
    readonly code: string,
    details: ErrorDetails,
  ) {
    const { cause } = details
    if (cause instanceof Error) redactError(cause)
    super(redactSecrets(details.message), cause === undefined ? undefined : { cause })
    this.boundary = details.boundary
    this.retriable = details.retriable
    this.hint = details.hint === undefined ? undefined : redactSecrets(details.hint)
  }
}

/** Converts any thrown value to an Error, without the secrets that a library or a server put into its message. */
export function asError(thrown: unknown): Error {
  return redactError(thrown instanceof Error ? thrown : new Error(String(thrown)))
}

/** Says how a child process ended; `code` and `signal` as Node's `exit` and `close` events give them. */
export const endedHow = (code: number | null, signal: NodeJS.Signals | null): string =>
  signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`

/**
 * Says why a request failed: undici says only "fetch failed" and puts the reason into `cause`, sometimes only a code.
 */
export function failedRequest(thrown: unknown): string {
  const { message, cause } = asError(thrown)
  if (!(cause instanceof Error)) return message
  return cause.message || String((cause as NodeJS.ErrnoException).code ?? message)
}
