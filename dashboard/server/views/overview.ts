/**
 * Builds the data of the first page about a run: its state, its metrics per step, its alarms with links to causes.
 *
 * in   an opened run        out  JSON of api.ts
 * Invariant: the page shows what the run's latest refresh has read. This file itself reads from the log only the
 * offsets at which the fact topics end.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { scored } from '../../../replay/learning/evaluationScore'
import { type StepFigures, stepFigures } from '../../../replay/learning/stepFigures'
import { faultText } from '../../../replay/log/faults'
import { pathToday } from '../../../runtime/runPaths'
import type { AlarmLine, Overview, StepPoint } from '../../api'
import { offered } from '../actions/offered'
import { busWords, type CommandPlace, commandOf, commandText } from '../commands'
import { cursorOf, endsOf } from '../cursor'
import type { OpenedRun } from '../openedRun'
import { plannedSteps } from '../openRuns'
import type { FoldedAlarm, FoldedStep } from '../runFacts'
import { shownLine } from '../shownText'

/** Number of finished steps over which rates are measured. */
const rateOver = 10
const mostFaults = 20

export async function overview(run: OpenedRun, place: CommandPlace): Promise<Overview> {
  const { facts, index, newest, state } = run
  const steps = stepPoints(run)
  const started = facts.started
  const rates = ratesOf(steps)
  const planned = plannedSteps(run)
  const left = planned === null || state !== 'live' ? null : Math.max(0, planned - facts.step)
  let running = 0
  for (let i = 0; i < index.view.size; i++) if (index.view.state(i) === 'running') running++
  return {
    ...{ run: place.run, bus: place.bus, state, reason: shownLine(facts.finished?.reason ?? '') },
    recipe: shownLine(String(started?.recipe.name ?? '')),
    recipeDigest: started?.recipeDigest ?? '',
    codeDigest: started?.codeDigest ?? '',
    seed: started?.seed ?? 0,
    versions: started?.versions ?? {},
    startedAt: started?.at ?? 0,
    ...{ lastAt: newest.at, lastPlace: newest.place, records: newest.records },
    ...{ plannedSteps: planned, step: facts.step, ...rates },
    secondsLeft: left === null || rates.stepsPerHour === null ? null : (left * 3600) / rates.stepsPerHour,
    ...{ trajectories: index.view.size, running, steps },
    evaluations: facts.evaluations.map(one => ({
      ...scored(one),
      step: one.step,
      name: shownLine(one.name),
    })),
    alarms: facts.alarms.map(alarm => alarmLine(alarm, place)).reverse(),
    marks: facts.marks,
    faults: run.recorded.faults.slice(0, mostFaults).map(fault => shownLine(faultText(fault))),
    cursor: cursorOf(await endsOf(run.recorded)),
    command: commandOf(place, 'replay', 'steps'),
    commands: [
      {
        what: 'what the run waits for, since when, and on whom',
        command: commandText(['why', place.run, ...busWords(place)]),
      },
      ...chatCommand(run),
      ...(state === 'live' ? orders.map(([what, action]) => offered(run, place, what, { action })) : []),
      ...(state === 'live' || state === 'done' ? [] : [offered(run, place, 'resume it', { action: 'resume' })]),
    ],
  }
}

/** Returns the command that chats with the latest published policy; none if this host does not have its weights. */
function chatCommand({ facts, recorded }: OpenedRun): Overview['commands'] {
  if (facts.weights === undefined) return []
  const model = pathToday(recorded.files.root, facts.weights)
  if (!existsSync(join(model, 'config.json'))) return []
  const tools = facts.started?.recipe.tools as { readonly inPrompt?: unknown } | undefined
  const set = tools?.inPrompt === false ? ['--set', 'tools.inPrompt=false'] : []
  const words = ['chat', '--model', model, '--template', 'own', ...set]
  return [{ what: 'talk with the latest policy', command: commandText(words) }]
}

const orders = [
  ['pause: start no turn and no step, request no rollouts', 'pause'],
  ['resume: cancel a pause or a drain', 'go-on'],
  ['drain: end after the steps whose rollouts are requested', 'drain'],
  ['abort: end at once', 'abort'],
] as const

let cached: { readonly run: OpenedRun; readonly key: string; readonly points: readonly StepPoint[] } | undefined

export function stepPoints(run: OpenedRun): readonly StepPoint[] {
  const key = `${run.index.version} ${run.facts.version}`
  if (cached?.run === run && cached.key === key) return cached.points
  const figures = new Map(stepFigures(run.index.view, run.positiveAbove).map(one => [one.step, one]))
  const numbers = [...new Set([...figures.keys(), ...run.facts.steps.keys()])].sort((a, b) => a - b)
  const points = numbers.map(step => pointOf(step, figures.get(step), run.facts.steps.get(step)))
  cached = { run, key, points }
  return points
}

function pointOf(step: number, rollouts: StepFigures | undefined, folded: FoldedStep | undefined): StepPoint {
  const endedAt = folded?.endedAt ?? null
  const seconds = endedAt === null || rollouts === undefined ? null : (endedAt - rollouts.firstAt) / 1000
  const kinds = (rollouts?.groupsSelected ?? 0) + (rollouts?.groupsRejected ?? 0)
  return {
    step,
    outcome: folded?.outcome ?? 'open',
    at: endedAt,
    place: folded?.place ?? null,
    version: folded?.version ?? null,
    rollouts: rollouts?.rollouts ?? 0,
    seconds,
    values: {
      ...folded?.tally,
      ...folded?.update,
      reward: rollouts?.reward ?? null,
      positiveShare: rollouts?.positiveShare ?? null,
      meanTokens: rollouts?.meanTokens ?? null,
      meanTurns: rollouts?.meanTurns ?? null,
      meanToolCalls: rollouts?.meanToolCalls ?? null,
      toolErrorRate: rollouts?.toolErrorRate ?? null,
      toolErrorRateInPositives: rollouts?.toolErrorRateInPositives ?? null,
      truncatedShare: rollouts?.truncatedShare ?? null,
      rejectedShare: kinds === 0 ? null : (rollouts?.groupsRejected ?? 0) / kinds,
      tokensPerSecond: seconds === null || seconds <= 0 ? null : (rollouts?.tokens ?? 0) / seconds,
      stepSeconds: seconds,
    },
  }
}

/** Rates over the latest `rateOver` finished steps: the mean of their tokens per second, and the steps per hour. */
function ratesOf(steps: readonly StepPoint[]): Pick<Overview, 'tokensPerSecond' | 'stepsPerHour'> {
  const over = steps.filter(one => one.at !== null).slice(-rateOver)
  const rates = over.map(one => one.values.tokensPerSecond ?? null).filter(rate => rate !== null)
  const [first, last] = [over[0], over.at(-1)]
  const hours = first === last ? 0 : ((last?.at ?? 0) - (first?.at ?? 0)) / 3_600_000
  return {
    tokensPerSecond: rates.length === 0 ? null : rates.reduce((a, b) => a + b, 0) / rates.length,
    stepsPerHour: hours > 0 ? (over.length - 1) / hours : null,
  }
}

/**
 * Returns filters that select the trajectories which show the cause of an alarm: as the query of the page's list of
 * trajectories, and as the options of `replay ls`. They depend on the alarm's name and step.
 */
function causeOf(alarm: string, step: number): readonly [query: string, words: readonly string[]] {
  const at = step > 0 ? `step=${step}` : ''
  const of = step > 0 ? ['--step', String(step)] : []
  const and = (query: string) => [query, at].filter(one => one !== '').join('&')
  if (alarm.startsWith('tool-errors-despite'))
    return [and('toolErrors=1&reward=%3E0'), ['--tool-errors', '--reward', '>0', ...of]]
  if (alarm.startsWith('tool-errors')) return [and('toolErrors=1'), ['--tool-errors', ...of]]
  if (alarm === 'truncated-share' || alarm === 'length-explosion')
    return [and('status=truncated'), ['--status', 'truncated', ...of]]
  if (alarm === 'failed-rewards') return [and('reward=none'), ['--reward', 'none', ...of]]
  if (alarm === 'equal-groups') return [and('selection=rejected'), ['--selection', 'rejected', ...of]]
  if (alarm === 'reward-collapse') return [and('reward=%3D0'), ['--reward', '=0', ...of]]
  return [at, of]
}

function alarmLine(alarm: FoldedAlarm, place: CommandPlace): AlarmLine {
  const [query, words] = causeOf(alarm.alarm, alarm.step)
  const shows = alarm.alarm.startsWith('entropy') ? ['replay', 'entropy', '--all'] : ['replay', 'ls', ...words]
  return {
    ...{ at: alarm.at, place: alarm.place, step: alarm.step },
    alarm: shownLine(alarm.alarm),
    message: shownLine(alarm.message, 600),
    link: `trajectories${query === '' ? '' : `?${query}`}`,
    command: commandOf(place, ...shows),
  }
}
