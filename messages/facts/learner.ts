/**
 * Facts of the `learner` topic: what was trained on, what came of it, and where the weights are.
 *
 * `step.started` is a step's commit point: whatever dies after it, the same trajectories are trained on again from the
 * same base, so that no batch is applied twice to one state (DESIGN §4, steps without transactions).
 */
import type { Epoch, PolicyVersion, TrajectoryId } from '../ids'

/** A process took over the learner's part of a run. Its offset is the epoch of this topic from here on. */
export interface LearnerClaimed {
  readonly type: 'learner.claimed'
  readonly at: number
  readonly owner: string
}

export interface StepStarted {
  readonly type: 'step.started'
  readonly at: number
  readonly step: number
  readonly epoch: Epoch
  readonly baseVersion: PolicyVersion
  /** Directory name of the newest checkpoint before this step, relative to the run's checkpoints. */
  readonly baseCheckpoint: string
  /** In the order in which they are packed: (group, member). */
  readonly trajectories: readonly TrajectoryId[]
}

/** Numbers of a step by name: loss, gradNorm, clipFraction, trainedTokens, passAt1, … */
export type Metrics = Readonly<Record<string, number>>

export interface StepCompleted {
  readonly type: 'step.completed'
  readonly at: number
  readonly step: number
  readonly epoch: Epoch
  readonly version: PolicyVersion
  readonly metrics: Metrics
}

/** A step's loss or gradient was not finite: the weights are as before. */
export interface StepRejected {
  readonly type: 'step.rejected'
  readonly at: number
  readonly step: number
  readonly epoch: Epoch
  readonly reason: string
  readonly metrics: Metrics
}

export interface WeightsPublished {
  readonly type: 'weights.published'
  readonly at: number
  readonly version: PolicyVersion
  readonly step: number
  /** Where engines read them: a `file:` URL. */
  readonly url: string
  /** Where hosts fetch them that do not see that: an `http:` URL, whose `files.json` lists them. */
  readonly served?: string
  /** sha256 over the weight files, hex. */
  readonly digest: string
  readonly bytes: number
  /** Where adapters are trained: below the weights, in `adapter/`, for engines that have the model they belong to. */
  readonly adapter?: { readonly digest: string; readonly bytes: number }
  /** Of the learner that says so; logs from before learners took turns have none. */
  readonly epoch?: Epoch
}

export interface CheckpointSaved {
  readonly type: 'checkpoint.saved'
  readonly at: number
  readonly step: number
  readonly version: PolicyVersion
  /** Directory name, relative to the run's checkpoints. */
  readonly name: string
  readonly digest: string
  readonly epoch?: Epoch
}

export interface StageChanged {
  readonly type: 'stage.changed'
  readonly at: number
  readonly stage: string
  /** Steps that are over. */
  readonly step: number
  readonly reason: string
  /** Place among the recipe's stages; none of a cold start. */
  readonly index?: number
  /** Before the next step: the optimizer begins anew, the reference becomes the policy of now. */
  readonly resetOptimizer?: boolean
  readonly updateReference?: boolean
  readonly epoch?: Epoch
}

export type LearnerFact =
  | LearnerClaimed
  | StepStarted
  | StepCompleted
  | StepRejected
  | WeightsPublished
  | CheckpointSaved
  | StageChanged
