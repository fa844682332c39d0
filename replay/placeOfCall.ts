/**
 * Formats a call of a captured session as one line: its number, label, the call that it continues, its attempt, dialect
 * and model.
 */
import type { CallStarted } from '../messages/facts'
import { escapeForTerminal } from '../runtime/escapeForTerminal'

export function placeOfCall({ call, attempt, label, parent, branch, dialect, model }: CallStarted): string {
  const from = parent === null ? 'begins anew' : `continues call ${parent}`
  const why = branch === null ? '' : ` (${branch})`
  const again = attempt === 0 ? '' : `, attempt ${attempt}`
  return `call ${call}  ${label}, ${from}${why}${again}, ${dialect} '${escapeForTerminal(model)}'`
}
