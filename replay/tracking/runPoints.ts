/**
 * Computes the points of a run for experiment trackers: its metrics by step, as `progress` folds them.
 *
 * in   a recorded run, live or over
 * out  its `run.started`, then a point for each completed step and evaluation, texts for alarms, and `run.finished`
 * Invariant: a point has the same values whether the run is followed live or read from its log afterwards, except that
 * a rollout which ends after its step counts only if the log has it when the step's end is read. `runs` and `learner`
 * are read only as far as they reached before `trajectories` was read, so a rollout that ends before its step always
 * counts.
 */
import { fence } from '../../actors/ownership/fencing'
import type { EvaluationCompleted, Fact, RunFinished, RunStarted } from '../../messages/facts'
import { progress, type StepReport } from '../learning/progress'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { Patience, type PatienceOptions, troubleOf } from './patience'

/** Values at a step. A point has the same `key` at every read of the log, so a tracker can store each point once. */
export interface Point {
  readonly key: string
  readonly step: number
  /** Time of the fact, ms since 1970. */
  readonly at: number
  readonly values: Readonly<Record<string, number>>
  readonly texts?: Readonly<Record<string, string>>
}

/** Receives points in the log's order. A call that failed with a retriable error is made again. */
export interface Tracker {
  /** Called before any point; called again if it fails with a retriable error. */
  begin(started: RunStarted): Promise<void>
  /** Stores the points that the tracker does not have yet. When the promise resolves, all `points` are stored. */
  keep(points: readonly Point[]): Promise<void>
  /** Called when the run has finished and all its points are stored. */
  end?(finished: RunFinished): Promise<void>
  close(): Promise<void>
}

export interface TrackOptions extends PatienceOptions {
  /** false: ends at the log's present end. true: follows until `run.finished`. */
  readonly follow: boolean
}

/** While at least this many points wait for the tracker, the log is not read further, except in the last try. */
const mostWaiting = 2000
/** Types of facts of `trajectories` that the points are computed from. */
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

/**
 * Sends every point of the run to the tracker. Resolves with `run.finished`; undefined if the run has none.
 * @throws the tracker's error: at once if it is not retriable; else after retries for `patienceMs` (without limit while
 * a followed run goes on), or at the last try after the signal is aborted
 */
export async function trackRun(
  recorded: RecordedRun,
  tracker: Tracker,
  options: TrackOptions,
): Promise<RunFinished | undefined> {
  const { signal } = options
  const started = await recorded.started()
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

  let waiting: readonly Point[] = []
  let hasBegun = false
  /** Sends the waiting points to the tracker. */
  async function give(): Promise<void> {
    if (!hasBegun) await tracker.begin(started)
    hasBegun = true
    if (waiting.length > 0) await tracker.keep(waiting)
    waiting = []
    if (finished !== undefined) await tracker.end?.(finished)
  }

  const patience = new Patience(options)
  for (;;) {
    const isLast = signal?.aborted === true
    if (isLast || waiting.length < mostWaiting) waiting = [...waiting, ...(await read())]
    const trouble = await troubleOf(give)
    const isOver = isLast || !options.follow || finished !== undefined
    if (trouble !== undefined) {
      await patience.failed(trouble, { isLast, isOver })
      continue
    }
    patience.worked()
    if (isOver) return finished
    await patience.pause(patience.everyMs)
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

/** Returns the finite numbers among the values, with a prefix before their names. */
const prefixed = (prefix: string, values: Readonly<Record<string, unknown>>): Record<string, number> =>
  Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) =>
      typeof value === 'number' && Number.isFinite(value) ? [[`${prefix}/${name}`, value]] : [],
    ),
  )
