/**
 * Creates errors of functions of replay/ that cannot do what a caller asks about a run, because of the log, a file or
 * an option. The errors are not retriable: the same call fails again while log, files and options stay as they are.
 */
import { TroupeError } from '../runtime/errors'

/** Creates the error. `code` has no prefix: `no_match` becomes `replay.no_match`. `hint`: what the user can do next. */
export const replayError = (code: string, message: string, hint: string, cause?: unknown): TroupeError =>
  new TroupeError(`replay.${code}`, { boundary: 'replay', retriable: false, message, hint, cause })
