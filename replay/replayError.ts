/**
 * The error that functions of replay/ throw when the log cannot answer the question.
 * These errors are not retriable: the same question to the same log fails again.
 */
import { TroupeError } from '../runtime/errors'

/** Creates the error. `code` has no prefix: `no_match` becomes `replay.no_match`. `hint`: what the user can do next. */
export const replayError = (code: string, message: string, hint: string, cause?: unknown): TroupeError =>
  new TroupeError(`replay.${code}`, { boundary: 'replay', retriable: false, message, hint, cause })
