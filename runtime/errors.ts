/**
 * Errors that a program and a person can act on: a code, the boundary that was crossed, whether to try again, a hint.
 * Everything thrown across a module of Troupe is one of these; a foreign error stands in `cause`.
 */
export type Boundary =
  | 'config'
  | 'bus'
  | 'codec'
  | 'actor'
  | 'engine'
  | 'trainer'
  | 'sandbox'
  | 'verifier'
  | 'process'
  | 'cli'

export interface ErrorDetails {
  readonly boundary: Boundary
  /** Whether the same call may succeed later without anything being changed. */
  readonly retriable: boolean
  readonly message: string
  /** What to do about it. */
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
    super(details.message, details.cause === undefined ? undefined : { cause: details.cause })
    this.boundary = details.boundary
    this.retriable = details.retriable
    this.hint = details.hint
  }
}

/** The error as something with a message, whatever was thrown. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown))
}
