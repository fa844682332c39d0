/**
 * Facts of the `learner` topic: which trajectories a step trains on, its result, and where the weights lie.
 *
 * `step.started` is the commit point of a step. If a process dies after it, the learner trains on the same trajectories
 * again, from the same base checkpoint or from one that was saved within the step, so that no batch is applied twice to
 * one state. `step` is the number of an optimizer step, `version` that of a published policy; `epoch` identifies the
 * learner that writes.
 */
import type { Epoch, PolicyVersion, TrajectoryId } from '../ids'

/** A process took over the learner's role. The offset of this fact is the topic's epoch from here on. */
export interface LearnerClaimed {
  readonly type: 'learner.claimed'
  readonly at: number
  /** Name of the process that took over. */
  readonly owner: string
}

/** An optimizer step began: its batch is fixed. This fact is the step's commit point. */
export interface StepStarted {
  readonly type: 'step.started'
  readonly at: number
  readonly step: number
  readonly epoch: Epoch
  /** Policy version that the step starts from. */
  readonly baseVersion: PolicyVersion
  /** Directory name of the newest checkpoint before this step, relative to the run's checkpoints. */
  readonly baseCheckpoint: string
  /** Trajectories of the batch, in the order in which they are packed: by group, then by member. */
  readonly trajectories: readonly TrajectoryId[]
}

/** Measurements of a step, an evaluation or a run, by name: loss, gradNorm, clipFraction, trainedTokens, passAt1, … */
export type Metrics = Readonly<Record<string, number>>

/** An optimizer step was applied once to the weights of `baseVersion`. */
export interface StepCompleted {
  readonly type: 'step.completed'
  readonly at: number
  readonly step: number
  readonly epoch: Epoch
  /** Policy version that the step made. */
  readonly version: PolicyVersion
  readonly metrics: Metrics
}

/**
 * The trainer refused the batch of a step: its loss or gradient was not finite, or a sequence cannot be trained on. The
 * weights stay as they were before the step.
 */
export interface StepRejected {
  readonly type: 'step.rejected'
  readonly at: number
  readonly step: number
  readonly epoch: Epoch
  readonly reason: string
  readonly metrics: Metrics
}

/** The weights of a policy version have been published: engines can read them from now on. */
export interface WeightsPublished {
  readonly type: 'weights.published'
  readonly at: number
  readonly version: PolicyVersion
  readonly step: number
  /**
   * Directory of the weights, for engines that share a file system with the learner: a path relative to the run's
   * directory. A `file:` URL for a model that lies elsewhere, and in old logs; `runtime/runPaths.ts` reads both.
   */
  readonly url: string
  /** The same files as an `http:` URL, for other hosts; `files.json` below it lists them. */
  readonly served?: string
  /**
   * sha256 over the published weight files, hex; '' in a run that does not train, whose weights are the initial model.
   */
  readonly digest: string
  /**
   * sha256 of the directory's manifest.json, which has the sha256 of every other file; absent in old logs and for the
   * initial model.
   */
  readonly manifest?: string
  readonly bytes: number
  /** Type of the published floating-point weights, `float32` or `bfloat16`; absent in old logs: float32. */
  readonly dtype?: string
  /**
   * Digest and size of the adapters, which lie in `adapter/` below the weights, for engines that have the base model;
   * absent unless the run trains adapters. `config`: sha256 of their adapter_config.json; absent in old logs.
   */
  readonly adapter?: { readonly digest: string; readonly bytes: number; readonly config?: string }
  /** Epoch of the learner that writes; absent in logs from before learners could be replaced. */
  readonly epoch?: Epoch
}

/** A checkpoint is complete on disk: written, fsynced and renamed into place. */
export interface CheckpointSaved {
  readonly type: 'checkpoint.saved'
  readonly at: number
  readonly step: number
  readonly version: PolicyVersion
  /** Name of the checkpoint's directory, relative to the run's checkpoints. */
  readonly name: string
  /** sha256 over the files of the checkpoint's weights, hex. */
  readonly digest: string
  /** sha256 of the checkpoint's manifest.json, which has the sha256 of every other file; absent in old logs. */
  readonly manifest?: string
  /** Size of all files in bytes; absent in old logs. */
  readonly bytes?: number
  /**
   * Number of optimizer updates that a cold start (step 0) or a step had made when it wrote this checkpoint; after a
   * crash, it resumes there. `version` is then the policy version that it began with, and `digest` is '', since no
   * engine loads the weights. Absent for the checkpoint of a finished cold start or step.
   */
  readonly updates?: number
  readonly epoch?: Epoch
}

/**
 * A checkpoint was removed, since no step needs it any more, and it was not among the newest `train.keepCheckpoints` or
 * was saved within a cold start or a step (`updates`). Steps can no longer be computed again from it.
 */
export interface CheckpointRemoved {
  readonly type: 'checkpoint.removed'
  readonly at: number
  readonly step: number
  /** Name of the checkpoint's directory, as in its `checkpoint.saved`. */
  readonly name: string
  readonly epoch?: Epoch
}

/** The run entered another stage of its recipe, or ended its cold start. */
export interface StageChanged {
  readonly type: 'stage.changed'
  readonly at: number
  /** Name of the stage that begins; `cold-start` when a cold start has ended. */
  readonly stage: string
  /** Number of steps that were over, completed or rejected, when the stage began. */
  readonly step: number
  readonly reason: string
  /** 0-based position among the recipe's stages; absent for a cold start. */
  readonly index?: number
  /** True: the optimizer's state is reset before the next step. */
  readonly resetOptimizer?: boolean
  /** True: the current policy becomes the reference policy before the next step. */
  readonly updateReference?: boolean
  readonly epoch?: Epoch
}

/**
 * A stage has progressed: the trainer has made further updates of the cold start. The fact is a sample in time: two
 * runs with one seed may report at different updates.
 */
export interface StageProgressed {
  readonly type: 'stage.progressed'
  readonly at: number
  /** Name of the stage; only `cold-start` reports progress. */
  readonly stage: string
  /** Share of the stage's optimizer updates that are done, 0 to 1. */
  readonly done: number
  /** Loss of the latest update. */
  readonly loss: number
  /** Estimate of the time until the stage ends, s; absent in the first report after a start. */
  readonly leftSeconds?: number
  readonly epoch?: Epoch
}

export type LearnerFact =
  | LearnerClaimed
  | StepStarted
  | StepCompleted
  | StepRejected
  | WeightsPublished
  | CheckpointSaved
  | CheckpointRemoved
  | StageChanged
  | StageProgressed
