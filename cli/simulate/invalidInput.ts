/** A file that `troupe simulate` cannot take: what was wrong, where, and where its form is described. */
import { TroupeError } from '../../runtime/errors'

export const invalidInput = (message: string, cause?: unknown): TroupeError =>
  new TroupeError('config.invalid', {
    ...{ boundary: 'config', retriable: false, message, cause },
    hint: 'docs/scheduler.md describes the files',
  })
