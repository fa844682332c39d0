/**
 * Errors of environment drivers, all with the boundary `environment`.
 * Codes: environment.unavailable (this machine cannot run the driver), environment.no_image, environment.start_failed,
 * environment.transfer_failed, environment.snapshot_failed, environment.unresponsive, environment.ended,
 * environment.refused.
 */
import { TroupeError } from '../../runtime/errors'

export type EnvironmentErrorCode =
  | 'environment.unavailable'
  | 'environment.no_image'
  | 'environment.start_failed'
  | 'environment.transfer_failed'
  | 'environment.snapshot_failed'
  | 'environment.unresponsive'
  | 'environment.ended'
  | 'environment.refused'

interface Details {
  readonly hint?: string
  readonly retriable?: boolean
  readonly cause?: unknown
}

export const environmentError = (code: EnvironmentErrorCode, message: string, details: Details = {}): TroupeError =>
  new TroupeError(code, { boundary: 'environment', retriable: false, message, ...details })

/** True if the error says that the environment is no longer there. */
export const isEnded = (thrown: unknown): boolean =>
  thrown instanceof TroupeError && thrown.code === 'environment.ended'
