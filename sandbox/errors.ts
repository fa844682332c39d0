/**
 * SandboxError: thrown when a sandbox, session or judge cannot be opened as asked, when a session cannot be forked,
 * when the sandbox is broken, full or closed, when a call was aborted, when an option is wrong, and when memory or disk
 * space is used up. How the code of a call ends, however badly, is a result and not an error. The fields repeat those
 * of TroupeError, which this folder may not import.
 */
export type SandboxErrorCode =
  | 'sandbox.queue_full'
  | 'sandbox.aborted'
  | 'sandbox.closed'
  | 'sandbox.start_failed'
  | 'sandbox.worker_lost'
  | 'sandbox.no_python'
  | 'sandbox.level_unmet'
  | 'sandbox.unsupported_platform'
  | 'sandbox.bad_option'
  | 'sandbox.session_unknown'
  | 'sandbox.out_of_memory'
  | 'sandbox.disk_full'
  | 'judge.unsafe_bind'
  | 'judge.bad_token'
  | 'judge.cannot_listen'
  | 'judge.bad_option'
  | 'judge.no_math'

export interface SandboxErrorDetails {
  /** true: the same call, unchanged, may succeed later. */
  readonly retriable: boolean
  readonly message: string
  readonly hint?: string
  readonly cause?: unknown
}

export class SandboxError extends Error {
  override readonly name = 'SandboxError'
  readonly boundary = 'sandbox'
  readonly retriable: boolean
  readonly hint: string | undefined

  constructor(
    readonly code: SandboxErrorCode,
    details: SandboxErrorDetails,
  ) {
    super(details.message, details.cause === undefined ? undefined : { cause: details.cause })
    this.retriable = details.retriable
    this.hint = details.hint
  }
}
