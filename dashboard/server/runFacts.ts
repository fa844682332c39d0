/**
 * Derives from the small topics of a run, `runs` and `learner`, what the page's header, curves and alarms show.
 *
 * in   entries of both topics, in each topic's order
 * out  start, end, latest weights, engines, steps, evaluations, alarms, marks (what happened, for the curves)
 * Invariant: facts of replaced (fenced) writers are left out. Batches of steps are not kept, since a run of months has
 * many steps.
 */
import { fence } from '../../actors/ownership/fencing'
import type { EngineJoined, EvaluationCompleted, Fact, Metrics, RunFinished, RunStarted } from '../../messages/facts'
import { placeText } from '../../replay/log/place'
import type { RecordedRun } from '../../replay/log/recordedRun'
import type { Entry } from '../../runtime/journal/journal'
import type { Mark } from '../api'
import { shownLine } from './shownText'

export interface FoldedStep {
  readonly step: number
  startedAt: number | null
  endedAt: number | null
  outcome: 'open' | 'completed' | 'rejected'
  version: number | null
  place: string | null
  update: Metrics
  tally: Metrics
}

export interface FoldedEngine {
  joined: EngineJoined
  state: 'up' | 'left' | 'asleep'
  reason: string
  version: number | null
}

export interface FoldedAlarm {
  readonly at: number
  readonly alarm: string
  readonly message: string
  readonly place: string
  readonly step: number
}

/** Upper bounds on the marks and on the alarms that are kept; the oldest are dropped first. */
const mostMarks = 2000
const mostAlarms = 500

export class RunFacts {
  started: RunStarted | undefined
  finished: RunFinished | undefined
  /** Path of the latest published weights, as `weights.published` names it (runtime/runPaths.ts). */
  weights: string | undefined
  readonly steps = new Map<number, FoldedStep>()
  readonly evaluations: EvaluationCompleted[] = []
  readonly engines = new Map<string, FoldedEngine>()
  readonly alarms: FoldedAlarm[] = []
  readonly marks: Mark[] = []
  step = 0
  /** Number that grows with each fact that was applied. */
  version = 0
  readonly #next = { runs: 0, learner: 0 }
  readonly #counts = fence()

  /** Reads what is new in both topics. */
  async refresh(recorded: RecordedRun): Promise<void> {
    for (const topic of ['runs', 'learner'] as const) {
      const [end] = await recorded.scan(
        topic,
        entry => {
          if (this.#counts(entry)) this.#take(entry)
        },
        ({ type }) => type === undefined || !skipped.has(type),
        [this.#next[topic]],
      )
      this.#next[topic] = end?.offset ?? 0
    }
  }

  #take(entry: Entry): void {
    this.version++
    const fact = entry.message as Fact
    const place = placeText(entry)
    const mark = (kind: Mark['kind'], text: string) => {
      this.marks.push({ at: fact.at, kind, text: shownLine(text), place })
      if (this.marks.length > mostMarks) this.marks.shift()
    }
    switch (fact.type) {
      case 'run.started':
        this.started ??= fact
        mark('started', 'run started')
        break
      case 'run.resumed':
        this.finished = undefined
        mark('resumed', 'run resumed')
        break
      case 'run.finished':
        this.finished = fact
        mark('finished', `${fact.outcome}: ${fact.reason}`)
        break
      case 'engine.joined':
        this.engines.set(fact.engine, { joined: fact, state: 'up', reason: '', version: null })
        mark('engine-joined', `${fact.engine} joined`)
        break
      case 'engine.left':
        this.#engine(fact.engine, engine => Object.assign(engine, { state: 'left', reason: fact.reason }))
        mark('engine-left', `${fact.engine} left: ${fact.reason}`)
        break
      case 'engine.slept':
        this.#engine(fact.engine, engine => Object.assign(engine, { state: 'asleep' }))
        break
      case 'engine.woke':
        this.#engine(fact.engine, engine => Object.assign(engine, { state: 'up' }))
        break
      case 'weights.applied':
        this.#engine(fact.engine, engine => Object.assign(engine, { version: fact.version }))
        break
      case 'weights.published':
        mark('weights', `policy ${fact.version} published`)
        this.weights = fact.url
        break
      case 'stage.changed':
        mark('stage', `stage ${fact.stage}: ${fact.reason}`)
        break
      case 'alarm.raised':
        this.alarms.push({ at: fact.at, alarm: fact.alarm, message: fact.message, place, step: this.step })
        if (this.alarms.length > mostAlarms) this.alarms.shift()
        mark('alarm', `${fact.alarm}: ${fact.message}`)
        break
      case 'evaluation.completed':
        this.evaluations.push(fact)
        break
      case 'step.tallied':
        this.#step(fact.step).tally = fact.metrics
        break
      case 'step.started':
        this.#step(fact.step).startedAt ??= fact.at
        break
      case 'step.completed':
      case 'step.rejected': {
        const step = this.#step(fact.step)
        if (step.outcome !== 'open') break
        const isDone = fact.type === 'step.completed'
        Object.assign(step, {
          outcome: isDone ? 'completed' : 'rejected',
          endedAt: fact.at,
          place,
          update: fact.metrics,
        })
        if (fact.type === 'step.completed') step.version = fact.version
        this.step = Math.max(this.step, fact.step)
        break
      }
    }
  }

  #step(step: number): FoldedStep {
    let found = this.steps.get(step)
    if (found === undefined) {
      found = {
        step,
        startedAt: null,
        endedAt: null,
        outcome: 'open',
        version: null,
        place: null,
        update: {},
        tally: {},
      }
      this.steps.set(step, found)
    }
    return found
  }

  #engine(name: string, change: (engine: FoldedEngine) => void): void {
    const engine = this.engines.get(name)
    if (engine !== undefined) change(engine)
  }
}

/** Types of facts that are large or frequent and shown nowhere. */
const skipped: ReadonlySet<string> = new Set([
  'curriculum.advanced',
  'tasks.measured',
  'checkpoint.saved',
  'checkpoint.removed',
])
