/**
 * Builds the command line of an action.
 *
 * in   a request's body (untrusted), the run that it is about        out  words of a `troupe` command
 * Invariant: every word is a constant, a checked number, an id that the run's index has, the opened run's name, or one
 * of the server's own options, so that no request can add an option. No action edits the recorded facts of a run: it
 * sends an order to the run's process, starts that process again (resume), reads the log, or makes a new run (fork).
 */
import { groupOf } from '../../../messages/ids'
import { replayError } from '../../../replay/replayError'
import { systemEffects } from '../../../runtime/effects'
import type { ActionName, ActionRequest, LimitName } from '../../apiActions'
import { busWords, type CommandPlace } from '../commands'
import type { OpenedRun } from '../openedRun'
import { badQuery } from '../query'

export interface ActionWords {
  readonly action: ActionName
  readonly words: readonly string[]
  /** Run that the action creates or resumes; null for other actions. */
  readonly opens: string | null
}

type Ids = Pick<OpenedRun['index'], 'view'>

/** @throws TroupeError dashboard.bad_query for a faulty body, replay.no_match for an id that the run does not have */
export function actionWords(body: unknown, ids: Ids, place: CommandPlace): ActionWords {
  const request = requestOf(body)
  const of = (...words: readonly string[]) => ({
    action: request.action,
    words: [...words, ...busWords(place), '--run', place.run],
    opens: null,
  })
  switch (request.action) {
    case 'pause':
    case 'drain':
    case 'abort':
      return { ...of(), words: ['control', place.run, request.action, ...busWords(place)] }
    case 'go-on':
      return { ...of(), words: ['control', place.run, 'resume', ...busWords(place)] }
    case 'resume':
      return { ...of(), words: ['train', '--resume', place.run, ...busWords(place)], opens: place.run }
    case 'fork': {
      const name = `fork-${place.run}-${systemEffects.now().toString(36)}`
      const from = ['--from-turn', String(request.turn), '--as', name]
      return { ...of('replay', 'fork', trajectoryIn(ids, request.trajectory), ...from), opens: name }
    }
    case 'rescore':
      return of('replay', 'rescore', targetIn(ids, request.target))
    case 'limits':
      return of('replay', 'limits', targetIn(ids, request.target), limitOptions[request.limit], String(request.most))
    case 'selection':
      return of('replay', 'roc', groupIn(ids, request.group), '--explain')
    case 'diff':
      return of('replay', 'diff', trajectoryIn(ids, request.trajectory), trajectoryIn(ids, request.other))
  }
}

const limitOptions: Readonly<Record<LimitName, string>> = {
  turns: '--turns',
  responseTokens: '--response-tokens',
  contextTokens: '--context-tokens',
  toolResponseChars: '--tool-response-chars',
  callsPerTurn: '--calls-per-turn',
}

const simple = ['pause', 'go-on', 'drain', 'abort', 'resume'] as const

function requestOf(body: unknown): ActionRequest {
  const fields = (typeof body === 'object' && body !== null ? body : {}) as Readonly<Record<string, unknown>>
  const text = (name: string): string => {
    const value = fields[name]
    if (typeof value === 'string' && value.length <= 400) return value
    throw badQuery(`the action's field '${name}' is missing or wrong; expected a text of at most 400 characters`)
  }
  const number = (name: string, least: number): number => {
    const value = fields[name]
    if (Number.isInteger(value) && Number(value) >= least && Number(value) < 2 ** 31) return Number(value)
    throw badQuery(`the action's field '${name}' is ${JSON.stringify(value)}; expected a whole number >= ${least}`)
  }
  const action = text('action')
  const order = simple.find(one => one === action)
  if (order !== undefined) return { action: order }
  switch (action) {
    case 'fork':
      return { action, trajectory: text('trajectory'), turn: number('turn', 0) }
    case 'rescore':
      return { action, target: text('target') }
    case 'limits': {
      const limit = text('limit')
      if (!Object.hasOwn(limitOptions, limit)) throw badQuery(`there is no limit ${JSON.stringify(limit.slice(0, 40))}`)
      return { action, target: text('target'), limit: limit as LimitName, most: number('most', 1) }
    }
    case 'selection':
      return { action, group: text('group') }
    case 'diff':
      return { action, trajectory: text('trajectory'), other: text('other') }
    default:
      throw badQuery(`there is no action ${JSON.stringify(action.slice(0, 40))}`)
  }
}

function trajectoryIn({ view }: Ids, asked: string): string {
  if (view.find(asked) !== undefined) return asked
  throw noMatch('trajectory', asked)
}

function groupIn({ view }: Ids, asked: string): string {
  for (let i = 0; i < view.size; i++) if (groupOf(view.id(i)) === asked) return asked
  throw noMatch('group', asked)
}

const noMatch = (kind: string, asked: string) =>
  replayError('no_match', `the run has no ${kind} ${JSON.stringify(asked.slice(0, 80))}`, 'npx troupe replay ls')

const targetIn = (ids: Ids, asked: string): string =>
  asked.includes('/') ? trajectoryIn(ids, asked) : groupIn(ids, asked)
