/**
 * Follows the facts of a recorded run by polling its log.
 *
 * in   a recorded run, which may be live; a selection of facts
 * out  each selected fact that can be read, once: what the log holds (unless `fromNow`), then what is appended
 * Invariant: the follower joins no consumer group, so it takes no records away from the run's processes.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { fence } from '../../actors/ownership/fencing'
import { learnerShapes } from '../../messages/shapes/learner'
import { runShapes } from '../../messages/shapes/run'
import { trajectoryShapes } from '../../messages/shapes/trajectory'
import type { Message } from '../../messages/topics'
import type { Entry } from '../../runtime/journal/journal'
import { didYouMean } from '../../runtime/settings/nearestName'
import { replayError } from '../replayError'
import type { Place } from './place'
import type { RecordedRun } from './recordedRun'

export interface FollowRunOptions {
  /**
   * Selects the facts about trajectories and groups for whose ids it returns true, and each `step.started` with such a
   * trajectory. Default: every fact, also those of the run and the learner.
   */
  readonly wants?: (id: string) => boolean
  /** Types of facts to deliver. Default: all. */
  readonly types?: readonly string[]
  /**
   * Delivers only facts with this text in a string or number among their values; case does not matter. Token ids and
   * logprobs are not searched.
   */
  readonly text?: string
  /** true: skips the facts that the log already holds. */
  readonly fromNow?: boolean
  /** true: following ends at `run.finished`, or at once when the log already holds it and no later `run.resumed`. */
  readonly untilEnd?: boolean
  /** Milliseconds between two polls of the log. Default 200. */
  readonly everyMs?: number
  /** Signal that ends following, without an error. */
  readonly signal?: AbortSignal
}

const topics = ['runs', 'trajectories', 'learner'] as const
const factTypes = Object.keys({ ...runShapes, ...trajectoryShapes, ...learnerShapes })

/**
 * Checks that `type` is a type of fact: waiting for an unknown type would never end. @throws TroupeError replay.no_type
 */
export function checkFactType(type: string): void {
  if (factTypes.includes(type)) return
  throw replayError(
    'no_type',
    `no fact has the type '${type}'${didYouMean(type, factTypes)}`,
    `types: ${factTypes.join(', ')}`,
  )
}

/**
 * Calls `take` with each selected fact. `counts` is false for a fact whose writer a later owner, learner or curriculum
 * had replaced. Resolves when the signal is aborted, at the end that `untilEnd` asks for, or, with `--at`, when
 * everything is read.
 * @throws TroupeError replay.no_type
 */
export async function followRun(
  recorded: RecordedRun,
  options: FollowRunOptions,
  take: (entry: Entry, counts: boolean) => void,
): Promise<void> {
  const { wants, types, signal, everyMs = 200 } = options
  types?.forEach(checkFactType)
  const text = options.text?.toLowerCase()
  let ended = false
  const isCurrent = fence()
  const look = (entry: Entry, isShown: boolean) => {
    const { message } = entry
    const counts = isCurrent(entry)
    if (counts && message.type === 'run.finished') ended = true
    if (counts && message.type === 'run.resumed') ended = false
    if (!isShown || !isAbout(message, wants)) return
    if (types !== undefined && !types.includes(message.type)) return
    if (text === undefined || holdsText(text, message)) take(entry, counts)
  }
  const places: Place[] = []
  for (const topic of topics) {
    places.push(...(await recorded.scan(topic, entry => look(entry, options.fromNow !== true))))
  }
  // A log that is read as of a past position (`--at`) gets no new facts.
  const isOver = () => signal?.aborted || recorded.at !== undefined || (options.untilEnd === true && ended)
  while (!isOver()) {
    await sleep(everyMs, undefined, signal === undefined ? {} : { signal }).catch(() => {})
    for (const [i, place] of places.entries()) places[i] = await recorded.scanFrom(place, entry => look(entry, true))
  }
}

function isAbout(message: Message, wants: ((id: string) => boolean) | undefined): boolean {
  if (wants === undefined) return true
  if ('trajectory' in message) return wants(message.trajectory)
  if ('group' in message) return wants(message.group)
  return message.type === 'step.started' && message.trajectories.some(wants)
}

/** Searches the text in the fact's values only: neither in JSON escapes nor in field names. */
function holdsText(text: string, value: unknown): boolean {
  if (typeof value === 'string') return value.toLowerCase().includes(text)
  if (typeof value === 'number') return String(value).includes(text)
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return false
  return Object.values(value).some(one => holdsText(text, one))
}
