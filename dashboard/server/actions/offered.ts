/** Makes a command that a view shows, with the action that runs the same command if actions are allowed. */
import type { ActionRequest, OfferedCommand } from '../../apiActions'
import { type CommandPlace, commandText } from '../commands'
import type { OpenedRun } from '../openedRun'
import { actionWords } from './actionWords'

/** Leaves the name of a fork's new run out of the shown command, since that name is made when the fork starts. */
export function offered(run: OpenedRun, place: CommandPlace, what: string, action: ActionRequest): OfferedCommand {
  const { words } = actionWords(action, run.index, place)
  const as = words.indexOf('--as')
  return { what, command: commandText(as < 0 ? words : words.toSpliced(as, 2)), action }
}
