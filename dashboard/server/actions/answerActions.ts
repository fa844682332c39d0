/**
 * Answers requests about a run's actions: lists, starts and stops them.
 *
 * in   GET actions; POST actions with an ActionRequest; POST actions/ID/stop
 * out  status and JSON of apiActions.ts
 * Invariant: the guard has let the request pass, so a POST comes from this server's page, with the token.
 */
import type { IncomingMessage } from 'node:http'
import type { Actions } from '../../apiActions'
import type { CommandPlace } from '../commands'
import type { OpenedRun } from '../openedRun'
import { actionWords } from './actionWords'
import { requestBody } from './requestBody'
import type { RunningActions } from './runningActions'

export interface ActionsAsked {
  /** undefined if actions are not allowed. */
  readonly actions: RunningActions | undefined
  readonly run: OpenedRun
  readonly place: CommandPlace
  readonly request: IncomingMessage
  /** Parts of the path after `actions`. */
  readonly path: readonly string[]
}

export interface ActionsAnswer {
  readonly status: number
  readonly value: unknown
}

/** Returns undefined when nothing is at the path. @throws TroupeError dashboard.bad_query, dashboard.action_running */
export async function answerActions(asked: ActionsAsked): Promise<ActionsAnswer | undefined> {
  const { actions, run, place, request, path } = asked
  const [id, verb] = path
  if (request.method !== 'POST') {
    const value: Actions = { allowed: actions !== undefined, actions: actions?.list(place.run) ?? [] }
    return path.length === 0 ? { status: 200, value } : undefined
  }
  if (actions === undefined) return undefined
  if (path.length === 0) {
    const made = actionWords(await requestBody(request), run.index, place)
    return { status: 202, value: actions.start(place.run, made) }
  }
  if (path.length !== 2 || verb !== 'stop') return undefined
  const stopped = actions.stop(place.run, id!)
  return stopped === undefined ? undefined : { status: 202, value: stopped }
}
