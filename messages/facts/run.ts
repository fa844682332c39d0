/**
 * Facts of the `runs` topic: a run's beginning and end, who takes part in it, how it is judged, what was noticed.
 * A run's facts alone say under which recipe, code, seeds and versions everything else of it came about.
 */
import type { EngineId, Epoch, GroupId, PolicyVersion, RunId, TrajectoryId } from '../ids'
import type { Metrics } from './learner'

export interface RunStarted {
  readonly type: 'run.started'
  readonly at: number
  readonly run: RunId
  /** The resolved recipe, secrets as references. */
  readonly recipe: Readonly<Record<string, unknown>>
  readonly recipeDigest: string
  readonly codeDigest: string
  readonly tokenizerDigest: string
  readonly seed: number
  /** Versions of Troupe, Node, Python, torch, transformers. */
  readonly versions: Readonly<Record<string, string>>
  /** Partitions of each topic. */
  readonly partitions: Readonly<Record<string, number>>
}

export interface RunResumed {
  readonly type: 'run.resumed'
  readonly at: number
  readonly run: RunId
  readonly recipeDigest: string
  readonly codeDigest: string
  readonly tokenizerDigest: string
}

export interface RunFinished {
  readonly type: 'run.finished'
  readonly at: number
  readonly run: RunId
  readonly outcome: 'done' | 'stopped' | 'failed'
  readonly reason: string
  readonly steps: number
  readonly summary: Readonly<Record<string, unknown>>
  /** Of the learner's part that says so; without, whoever says it is not fenced. */
  readonly learnerEpoch?: Epoch
}

export interface EngineJoined {
  readonly type: 'engine.joined'
  readonly at: number
  readonly engine: EngineId
  readonly kind: string
  readonly model: string
  readonly kvTokens: number
  readonly blockTokens: number
  readonly maxSequences: number
  readonly contextTokens: number
  /** One copy of a common prompt serves a whole group. */
  readonly prefixSharing: boolean
  /** `priority` chooses the victim of a preemption: -1 the largest value goes first, 1 the smallest, 0 it does not. */
  readonly prioritySign: -1 | 0 | 1
}

export interface EngineLeft {
  readonly type: 'engine.left'
  readonly at: number
  readonly engine: EngineId
  readonly reason: string
  /** It may join again after this, ms. Absent: at once. */
  readonly retryAfterMs?: number
}

/** From here on the engine samples under this policy. */
export interface WeightsApplied {
  readonly type: 'weights.applied'
  readonly at: number
  readonly engine: EngineId
  readonly version: PolicyVersion
  readonly digest: string
}

export interface EvaluationCompleted {
  readonly type: 'evaluation.completed'
  readonly at: number
  readonly name: string
  readonly step: number
  readonly version: PolicyVersion
  readonly passAt1: number
  readonly standardError: number
  /** Problems with a judged answer, and how many judged answers a problem has at most. With n = 0 there is no score. */
  readonly n: number
  readonly samples: number
  readonly metrics: Metrics
  /** Problems that were asked, and answers to each; older logs do not say it. */
  readonly asked?: { readonly problems: number; readonly samples: number }
  /** Of the learner's part that says so; without, whoever says it is not fenced. */
  readonly learnerEpoch?: Epoch
}

/** Tasks were drawn for a step. The next draw begins at `cursor`. */
export interface CurriculumAdvanced {
  readonly type: 'curriculum.advanced'
  readonly at: number
  readonly step: number
  /** measure: how often the policy solves them, for a stage that is about to begin. */
  readonly purpose: 'train' | 'eval' | 'measure'
  readonly groups: readonly GroupId[]
  readonly cursor: number
  /** Start order of the next rollout. */
  readonly order: number
  /** Where each partition of `trajectories` ended before: no fact of these groups stands before that. */
  readonly begins?: readonly number[]
  /** Of the curriculum that says so. */
  readonly learnerEpoch?: Epoch
}

/** A process took over as curriculum: what an earlier one says that it drew, after this, is not heard. */
export interface DrawsClaimed {
  readonly type: 'draws.claimed'
  readonly at: number
  readonly owner: string
  /** Offset of its `learner.claimed`. */
  readonly learnerEpoch: Epoch
}

/** A trajectory shares the first `turn` turns of another, and went on from there by itself. */
export interface TrajectoryForked {
  readonly type: 'trajectory.forked'
  readonly at: number
  readonly parent: TrajectoryId
  readonly child: TrajectoryId
  readonly turn: number
  /** Where the parent is of another run. */
  readonly parentRun?: RunId
}

/** How often the policy solved some of the recipe's problems, in their order from `from` on. */
export interface TasksMeasured {
  readonly type: 'tasks.measured'
  readonly at: number
  /** Of the stage that is about to begin. */
  readonly stage: string
  readonly index: number
  readonly from: number
  readonly samples: number
  /** Of `samples`; what failed to run is not solved. */
  readonly solved: readonly number[]
  /** Of the learner's part that says so; without, whoever says it is not fenced. */
  readonly learnerEpoch?: Epoch
}

/** A step is over: what its rollouts came to, beside the numbers of its update. */
export interface StepTallied {
  readonly type: 'step.tallied'
  readonly at: number
  readonly step: number
  readonly metrics: Metrics
  /** Of the learner's part that says so; without, whoever says it is not fenced. */
  readonly learnerEpoch?: Epoch
}

/** A record could not be read, or killed its receiver again and again. It stands in `dead-letters`, and is left out. */
export interface RecordRefused {
  readonly type: 'record.refused'
  /** When the record had been written. Whoever meets it says the same. */
  readonly at: number
  /** Topic as it is on the bus, partition, offset. */
  readonly origin: string
  readonly error: string
}

export interface AlarmRaised {
  readonly type: 'alarm.raised'
  readonly at: number
  readonly alarm: string
  readonly message: string
  /** Of the learner's part that says so; without, whoever says it is not fenced. */
  readonly learnerEpoch?: Epoch
}

export type RunFact =
  | RunStarted
  | RunResumed
  | RunFinished
  | EngineJoined
  | EngineLeft
  | WeightsApplied
  | EvaluationCompleted
  | CurriculumAdvanced
  | DrawsClaimed
  | TasksMeasured
  | StepTallied
  | TrajectoryForked
  | RecordRefused
  | AlarmRaised
