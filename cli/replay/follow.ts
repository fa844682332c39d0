/**
 * `troupe replay follow [G|T]`: a run's facts as they come, a line each.
 *
 * in   a run that may be live        out  what stands in its log for the target, then what is added, until Ctrl-C
 * Invariant: it reads by looking, joins no consumer group, and so takes nothing from those who run.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { closest } from 'fastest-levenshtein'
import { fence } from '../../actors/ownership/fencing'
import { learnerShapes } from '../../messages/shapes/learner'
import { runShapes } from '../../messages/shapes/run'
import { trajectoryShapes } from '../../messages/shapes/trajectory'
import type { Message } from '../../messages/topics'
import { shownScore } from '../../replay/learning/evaluationScore'
import { type Place, placeText } from '../../replay/log/place'
import { resolveTarget, trajectoriesOf } from '../../replay/trajectories/resolveId'
import { TroupeError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal/journal'
import { escapeForTerminal, painter } from '../io/terminal'
import { wholeNumber } from '../options/readers'
import { jsonText } from './jsonText'
import { openRecorded, type ReadOptions, reportFaults, withRun } from './runOptions'

interface FollowOptions extends ReadOptions {
  readonly json?: boolean
  readonly type?: readonly string[]
  readonly text?: string
  readonly fromNow?: boolean
  readonly untilEnd?: boolean
  readonly everyMs: number
}

const topics = ['runs', 'trajectories', 'learner'] as const
const replaced = '  (does not count: another had taken its part over)'

export function registerFollow(replay: Command): void {
  const command = replay
    .command('follow [target]')
    .description('print facts as they come: of a trajectory, of a group, or of the whole run')
    .option('--type <types...>', 'only facts of these types, as turn.completed')
    .option('--text <text>', 'only facts in which it stands; case does not matter')
    .option('--from-now', 'leave out what is there already')
    .option('--until-end', 'stop at run.finished, or at once where it is there')
    .option('--every-ms <ms>', 'how often to look', wholeNumber(10, 60_000), 200)
    .option('--json', 'a JSON line each')
  withRun(command).action(follow)
}

async function follow(target: string | undefined, options: FollowOptions): Promise<void> {
  for (const type of options.type ?? []) checkType(type)
  const recorded = await openRecorded(options)
  const stop = new AbortController()
  const onSignal = () => stop.abort()
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal)
  try {
    const isWanted = target === undefined ? () => true : resolveTarget(target, await trajectoriesOf(recorded))
    const text = options.text?.toLowerCase()
    let ended = false
    const isHeard = fence()
    const take = (entry: Entry, show: boolean) => {
      const { message } = entry
      const counts = isHeard(entry)
      if (counts && message.type === 'run.finished') ended = true
      if (counts && message.type === 'run.resumed') ended = false
      if (!show || !concerns(message, isWanted, target !== undefined)) return
      if (options.type !== undefined && !options.type.includes(message.type)) return
      const line = options.json
        ? jsonText({ place: placeText(entry), ...message, ...(counts ? {} : { counts }) })
        : `${paint('dim', placeText(entry).padEnd(22))} ${factLine(message)}${counts ? '' : paint('yellow', replaced)}`
      if (text !== undefined && !stands(text, message)) return
      process.stdout.write(`${line}\n`)
    }
    const places: Place[] = []
    for (const topic of topics) {
      places.push(...(await recorded.scan(topic, entry => take(entry, options.fromNow !== true))))
    }
    // A look at the past has no future.
    const isOver = () => stop.signal.aborted || options.at !== undefined || (options.untilEnd === true && ended)
    while (!isOver()) {
      await sleep(options.everyMs, undefined, { signal: stop.signal }).catch(() => {})
      for (const [i, place] of places.entries()) places[i] = await recorded.scanFrom(place, entry => take(entry, true))
    }
    reportFaults(recorded)
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal)
    await recorded.close()
  }
}

/** In what it says, as it is said: neither escapes nor names of fields. */
function stands(text: string, value: unknown): boolean {
  if (typeof value === 'string') return value.toLowerCase().includes(text)
  if (typeof value === 'number') return String(value).includes(text)
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return false
  return Object.values(value).some(one => stands(text, one))
}

/** @throws TroupeError cli.no_type: a slip of the pen would wait for ever */
function checkType(type: string): void {
  if (factTypes.includes(type)) return
  throw new TroupeError('cli.no_type', {
    boundary: 'cli',
    retriable: false,
    message: `no fact is of type '${type}'; is '${closest(type, factTypes)}' meant?`,
    hint: `types: ${factTypes.join(', ')}`,
  })
}

const factTypes = Object.keys({ ...runShapes, ...trajectoryShapes, ...learnerShapes })

function concerns(message: Message, isWanted: (id: string) => boolean, chosen: boolean): boolean {
  if ('trajectory' in message) return isWanted(message.trajectory)
  if ('group' in message) return isWanted(message.group)
  if (message.type === 'step.started') return message.trajectories.some(isWanted)
  return !chosen
}

const paint = painter(process.stdout)
const shortest = (text: string, most = 100) => {
  const line = escapeForTerminal(text).replace(/\s+/g, ' ').trim()
  return line.length > most ? `${line.slice(0, most - 1)}…` : line
}

/** A fact in one line, for people. */
export function factLine(message: Message): string {
  const who = 'trajectory' in message ? message.trajectory : 'group' in message ? String(message.group) : ''
  const turn = 'turn' in message ? `#${message.turn}` : ''
  const head = `${message.type.padEnd(17)} ${escapeForTerminal(who)}${turn}`
  switch (message.type) {
    case 'rollout.requested':
      return `${head}  ${message.purpose}, step ${message.step}, ${message.tokens.length} prompt tokens`
    case 'turn.asked':
      return `${head}  attempt ${message.attempt}, ${message.contextTokens} tokens of context`
    case 'turn.completed':
      return `${head}  ${message.tokens.length} tokens, ${message.finish}: ${shortest(message.text)}`
    case 'turn.interrupted':
      return `${head}  after ${message.tokens.length} tokens: ${message.reason} ${shortest(message.error)}`
    case 'tool.asked':
      return `${head}  ${shortest(message.tool, 40)} ${shortest(JSON.stringify(message.arguments))}`
    case 'tool.completed':
      return `${head}  ${message.status}: ${shortest(message.text)}`
    case 'context.appended':
      return `${head}  ${message.tokens.length} tokens: ${shortest(message.text)}`
    case 'rollout.finished':
      return `${head}  ${message.outcome} (${shortest(message.reason)}), ${message.turns} turns`
    case 'reward.failed':
      return `${head}  ${shortest(message.how)}: ${shortest(message.why)}`
    case 'reward.assigned':
      return `${head}  ${message.reward}, answer '${shortest(message.answer)}' (${shortest(message.how)})`
    case 'group.closed':
      return `${head}  ${message.reason}, ${message.rewarded.length} rewarded`
    case 'group.selected':
      return `${head}  ${message.kept.length} kept, ${message.dropped.length} dropped (${shortest(message.selection)})`
    case 'group.rejected':
      return `${head}  ${message.reason}, mean reward ${message.meanReward.toFixed(3)}`
    case 'step.started':
      return `${head} ${message.step}, ${message.trajectories.length} trajectories on version ${message.baseVersion}`
    case 'step.completed':
      return `${head} ${message.step}, loss ${(message.metrics.loss ?? Number.NaN).toPrecision(4)}, version ${message.version}`
    case 'weights.published':
      return `${head} version ${message.version}, ${message.bytes} bytes`
    case 'evaluation.completed':
      return `${head} ${shortest(message.name)}, pass@1 ${shownScore(message)} after step ${message.step}`
    case 'record.refused':
      return `${head} ${shortest(message.origin)}: ${shortest(message.error)}`
    case 'alarm.raised':
      return `${head} ${shortest(message.alarm)}: ${shortest(message.message)}`
    case 'run.finished':
      return `${head} ${message.outcome}: ${shortest(message.reason)}`
    default:
      return head
  }
}
