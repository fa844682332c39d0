/** Creates the errors of actors; each names the actor by its path. */
import { TroupeError } from '../errors'

export type ActorErrorCode =
  | 'actor.aborted'
  | 'actor.ask_timeout'
  | 'actor.bad_capacity'
  | 'actor.bad_name'
  | 'actor.defect'
  | 'actor.escalated'
  | 'actor.failed'
  | 'actor.handler_failed'
  | 'actor.name_taken'
  | 'actor.overloaded'
  | 'actor.start_failed'
  | 'actor.stop_timeout'
  | 'actor.stopped'
  | 'actor.tell_timeout'

/** Codes of errors after which the same call, unchanged, may succeed later. */
const retriable: ReadonlySet<ActorErrorCode> = new Set<ActorErrorCode>([
  'actor.ask_timeout',
  'actor.overloaded',
  'actor.tell_timeout',
])

export function actorError(
  code: ActorErrorCode,
  path: string,
  text: string,
  more: { readonly cause?: unknown; readonly hint?: string } = {},
): TroupeError {
  return new TroupeError(code, {
    boundary: 'actor',
    retriable: retriable.has(code),
    message: `${path} ${text}`,
    ...more,
  })
}
