/**
 * Points of a run for trackers of experiments: figures by step, as the run's progress has them.
 *
 * in   a recorded run, live or over        out  its parameters, then a point for each step and evaluation, and texts for alarms
 * Invariant: a point has the same values whether the run is followed live or read from its log afterwards: `runs` and
 * `learner` are read only as far as they reached before `trajectories` was read, so every rollout of a step comes before its end.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { fence } from '../../actors/ownership/fencing'
import type { EvaluationCompleted, Fact, RunFinished, RunStarted } from '../../messages/facts'
import { progress, type StepReport } from '../learning/progress'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'

/** Values at a step. `key` names the point in its run for ever: a tracker that has it gets it no second time. */
export interface Point {
  readonly key: string
  readonly step: number
  /** Time of the fact, ms since 1970. */
  readonly at: number
  readonly values: Readonly<Record<string, number>>
  readonly texts?: Readonly<Record<string, string>>
}

/** Receives points in the log's order, and must have kept them once it resolves. */
export interface Tracker {
  /** Called once, before any point. */
  begin(started: RunStarted): Promise<void>
  /** Keeps points that it does not have yet. */
  keep(points: readonly Point[]): Promise<void>
  close(): Promise<void>
}

export interface TrackOptions {
  /** false: ends at the log's present end. true: follows until `run.finished`. */
  readonly follow: boolean
  readonly everyMs?: number
  readonly signal?: AbortSignal
}

const usualEveryMs = 1000
/** Facts of `trajectories` that figures need. */
const counted: ReadonlySet<string> = new Set([
  ...[
    'partition.claimed',
    'curriculum.claimed',
    'rollout.requested',
    'rollout.finished',
    'reward.assigned',
    'reward.failed',
  ],
  ...['group.selected', 'group.rejected'],
])

/** Gives the tracker every point of the run. Resolves with the run's end; undefined while it has none. */
export async function trackRun(
  recorded: RecordedRun,
  tracker: Tracker,
  options: TrackOptions,
): Promise<RunFinished | undefined> {
  const { signal, everyMs = usualEveryMs } = options
  await tracker.begin(await recorded.started())
  const { selection } = await configOf(recorded)
  const folded = progress({ positiveAbove: selection.positiveAbove, onlyEnds: true })
  const counts = fence()
  const next: { trajectories: number[]; runs: number[]; learner: number[] } = {
    trajectories: [],
    runs: [],
    learner: [],
  }
  let finished: RunFinished | undefined

  /** Reads what was appended since the last call. */
  async function read(): Promise<Point[]> {
    const ends = { runs: await recorded.endOf('runs', 0), learner: await recorded.endOf('learner', 0) }
    const points: Point[] = []
    const ofTrajectories = await recorded.scan(
      'trajectories',
      entry => {
        if (counts(entry)) folded.take(entry.message as Fact)
      },
      ({ type }) => type === undefined || counted.has(type),
      next.trajectories,
    )
    next.trajectories = ofTrajectories.map(({ offset }) => offset)
    for (const topic of ['runs', 'learner'] as const) {
      const end = ends[topic]
      await recorded.scan(
        topic,
        entry => {
          if (!counts(entry)) return
          const fact = entry.message as Fact
          if (fact.type === 'run.finished') finished = fact
          if (fact.type === 'run.resumed') finished = undefined
          const point = pointOf(fact, folded.take(fact))
          if (point !== undefined) points.push(point)
        },
        (_, { offset }) => offset < end,
        next[topic],
      )
      next[topic] = [end]
    }
    return points.sort((a, b) => a.at - b.at)
  }

  for (;;) {
    const points = await read()
    if (points.length > 0) await tracker.keep(points)
    if (!options.follow || finished !== undefined || signal?.aborted) return finished
    await sleep(everyMs, undefined, signal === undefined ? {} : { signal }).catch(() => {})
  }
}

function pointOf(fact: Fact, report: StepReport | EvaluationCompleted | undefined): Point | undefined {
  if (fact.type === 'alarm.raised') {
    const { alarm, at, message } = fact
    return { key: `alarm/${alarm}/${at}`, step: 0, at, values: {}, texts: { [`alarm/${alarm}`]: message } }
  }
  if (fact.type === 'step.completed' && report?.type === 'step') {
    const { type: _type, step, metrics, ...figures } = report
    const values = { ...prefixed('train', figures), ...prefixed('update', metrics) }
    return { key: `step/${step}`, step, at: fact.at, values }
  }
  if (fact.type !== 'evaluation.completed') return undefined
  const { step, at, name, passAt1, standardError, n, metrics } = fact
  const values = prefixed(`eval/${name}`, { passAt1, standardError, n, ...metrics })
  return { key: `eval/${name}/${step}`, step, at, values }
}

/** Keeps finite numbers, with a prefix to their names. */
const prefixed = (prefix: string, values: Readonly<Record<string, unknown>>): Record<string, number> =>
  Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) =>
      typeof value === 'number' && Number.isFinite(value) ? [[`${prefix}/${name}`, value]] : [],
    ),
  )
