/**
 * The error that the functions of replay/ throw for a question that the log cannot answer as it was asked.
 * None of them is retriable: the same question to the same log fails again.
 */
import { TroupeError } from '../runtime/errors'

/** `code`: without its prefix, `no_match` becomes `replay.no_match`. `hint`: what to do next. */
export const replayError = (code: string, message: string, hint: string, cause?: unknown): TroupeError =>
  new TroupeError(`replay.${code}`, { boundary: 'replay', retriable: false, message, hint, cause })
