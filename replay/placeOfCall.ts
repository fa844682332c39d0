/**
 * Formats a model call that an agent made through the gateway, as one phrase: its number, label, the call that it
 * continues and why it branches off there (if it does), its attempt (after the first), API dialect and model.
 */
import type { CallStarted } from '../messages/facts'
import { escapeForTerminal } from '../runtime/escapeForTerminal'

export function placeOfCall({ call, attempt, label, parent, branch, dialect, model }: CallStarted): string {
  const from = parent === null ? 'begins anew' : `continues call ${parent}`
  const why = branch === null ? '' : ` (${branch})`
  const again = attempt === 0 ? '' : `, attempt ${attempt}`
  return `call ${call}  ${label}, ${from}${why}${again}, ${dialect} '${escapeForTerminal(model)}'`
}
