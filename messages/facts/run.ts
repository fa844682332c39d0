/**
 * Facts of the `runs` topic: starts, resumes and the end of a run, its engines, evaluations, draws of tasks, measured
 * tasks, metrics of rollouts, forks, unreadable records, orders of people, alarms.
 * Only `run.started` records the recipe, the run's seed and the versions of Troupe and its packages; it and each
 * `run.resumed` record the digests of the recipe, the code and the tokenizer, and the environment of the model's code.
 */
import type { EngineId, Epoch, GroupId, PolicyVersion, RunId, TrajectoryId } from '../ids'
import type { Metrics } from './learner'

/** A run began. The fact records what the run depends on: recipe, code, tokenizer, seed, versions. */
export interface RunStarted {
  readonly type: 'run.started'
  readonly at: number
  readonly run: RunId
  /** The resolved recipe, with secrets as references. */
  readonly recipe: Readonly<Record<string, unknown>>
  /** sha256 of the recipe, hex. */
  readonly recipeDigest: string
  /** sha256 of Troupe's sources that decide the course of a run (runtime/digests.ts), hex. */
  readonly codeDigest: string
  /** sha256 of the tokenizer and its chat template, hex. */
  readonly tokenizerDigest: string
  readonly seed: number
  /** Versions of Troupe, Node, Python, torch, transformers. */
  readonly versions: Readonly<Record<string, string>>
  /** Number of partitions, by topic. This version of the code writes it for `trajectories` only. */
  readonly partitions: Readonly<Record<string, number>>
  /** Interpreter and packages of the model's code. Absent in earlier logs, and if they could not be determined. */
  readonly toolEnvironment?: ToolEnvironment
  /**
   * Name of the recipe, or the absolute path of its file, so that a resume need not name it. Absent in earlier logs,
   * and in runs that a program started with a recipe object.
   */
  readonly source?: string
}

/** Interpreter and packages of the code that a model writes. */
export interface ToolEnvironment {
  /** sha256 of the other fields, hex. */
  readonly digest: string
  /** Version of the interpreter. */
  readonly python: string
  /** Versions of the packages that are promised to programs, by name. */
  readonly packages: Readonly<Record<string, string>>
}

/** A process resumed a run that had begun earlier, under these digests. */
export interface RunResumed {
  readonly type: 'run.resumed'
  readonly at: number
  readonly run: RunId
  readonly recipeDigest: string
  readonly codeDigest: string
  readonly tokenizerDigest: string
  readonly toolEnvironment?: ToolEnvironment
}

/**
 * A run ended. stopped: the run ended before its last step: by an order, by an alarm, because all groups drawn for the
 * next step had equal rewards after at least one step, or, if it is a run of forks, by a signal. A training run that a
 * signal ends has no such fact.
 */
export interface RunFinished {
  readonly type: 'run.finished'
  readonly at: number
  readonly run: RunId
  readonly outcome: 'done' | 'stopped' | 'failed'
  readonly reason: string
  /** Number of steps that were over when the run ended, rejected ones included. */
  readonly steps: number
  /** Values about the run, by name. This version of the code writes an empty object. */
  readonly summary: Readonly<Record<string, unknown>>
  /**
   * Epoch of the learner role that writes: the offset of its process's `learner.claimed`. A fact without one always
   * counts, whichever process is active.
   */
  readonly learnerEpoch?: Epoch
}

/** An engine joined the run. It is given turns from its first `weights.applied` on. */
export interface EngineJoined {
  readonly type: 'engine.joined'
  readonly at: number
  readonly engine: EngineId
  /** Kind of the engine: local, vllm, sglang, recorded, simulated, … */
  readonly kind: string
  readonly model: string
  /** Capacity of the KV cache, in tokens. */
  readonly kvTokens: number
  /** Tokens of one block; the KV cache is allocated in such blocks. */
  readonly blockTokens: number
  /** Upper bound on the sequences that run on the engine at once. */
  readonly maxSequences: number
  /** Upper bound on the tokens of a sequence, prompt included. */
  readonly contextTokens: number
  /** True: the engine stores the KV of a group's common prompt once. */
  readonly prefixSharing: boolean
  /**
   * Order in which the engine preempts requests by `priority`: -1 the largest value first, 1 the smallest first, 0 by
   * another rule.
   */
  readonly prioritySign: -1 | 0 | 1
}

/** An engine left the run: it is given no more turns, unless it joins again. */
export interface EngineLeft {
  readonly type: 'engine.left'
  readonly at: number
  readonly engine: EngineId
  readonly reason: string
  /** Milliseconds from `at` before which the engine may not join again. Absent: it may at once. */
  readonly retryAfterMs?: number
}

/** An engine loaded new weights and samples under this policy version from here on. */
export interface WeightsApplied {
  readonly type: 'weights.applied'
  readonly at: number
  readonly engine: EngineId
  readonly version: PolicyVersion
  /**
   * Digest of the weights, as in `weights.published`; empty when an engine joins with weights that it holds already.
   */
  readonly digest: string
}

/**
 * An engine freed its GPU memory for the trainer (`hardware.plan` colocated): its KV cache is gone, and no engine of
 * the run gets turns while one sleeps.
 */
export interface EngineSlept {
  readonly type: 'engine.slept'
  readonly at: number
  readonly engine: EngineId
}

/** An engine that slept has its GPU memory again, and weights to sample from. */
export interface EngineWoke {
  readonly type: 'engine.woke'
  readonly at: number
  readonly engine: EngineId
}

/** An evaluation ended: its score under one policy. */
export interface EvaluationCompleted {
  readonly type: 'evaluation.completed'
  readonly at: number
  /** Name of the evaluation; a live run writes `held-out`. */
  readonly name: string
  readonly step: number
  readonly version: PolicyVersion
  readonly passAt1: number
  /**
   * Standard error of `passAt1`: over the problems, or over the answers if only one problem was judged. null when there
   * are fewer than two such values: one answer of one problem was judged, or none.
   */
  readonly standardError: number | null
  /** Number of problems with at least one judged answer; with n = 0 there is no score. */
  readonly n: number
  /** Number of judged answers of the problem that has the most of them. */
  readonly samples: number
  readonly metrics: Metrics
  /** Number of problems that were asked, and number of answers asked for each problem; absent in older logs. */
  readonly asked?: { readonly problems: number; readonly samples: number }
  /** Epoch of the learner role that writes. A fact without one always counts, whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/** The curriculum requested the rollouts of new groups for a step, an evaluation or a measurement: one draw. */
export interface CurriculumAdvanced {
  readonly type: 'curriculum.advanced'
  readonly at: number
  readonly step: number
  /**
   * Use of the tasks. measure: rollouts that measure how often the policy solves them, for a stage that is about to
   * begin.
   */
  readonly purpose: 'train' | 'eval' | 'measure'
  readonly groups: readonly GroupId[]
  /**
   * Index of the task after the last one that the draw read; it skips a task whose prompt is too long. train: the next
   * draw begins there. measure: an index among the stage's measured problems. eval: every evaluation begins at 0.
   */
  readonly cursor: number
  /** Start order of the next rollout to be requested. */
  readonly order: number
  /** End offset of each partition of `trajectories` before the draw: no fact of these groups has a lower offset. */
  readonly begins?: readonly number[]
  /** Epoch of the curriculum that writes the fact. */
  readonly learnerEpoch?: Epoch
}

/** A process took over as curriculum. Draws that an earlier curriculum reports after this fact are ignored. */
export interface DrawsClaimed {
  readonly type: 'draws.claimed'
  readonly at: number
  /** Name of the process that took over. */
  readonly owner: string
  /** Epoch of the learner role: offset of the process's `learner.claimed`. */
  readonly learnerEpoch: Epoch
}

/** A trajectory was forked: `child` shares the first `turn` turns with `parent`, then continues by itself. */
export interface TrajectoryForked {
  readonly type: 'trajectory.forked'
  readonly at: number
  readonly parent: TrajectoryId
  readonly child: TrajectoryId
  readonly turn: number
  /** Run of the parent; absent: the same run. */
  readonly parentRun?: RunId
}

/**
 * The policy was measured on some of the recipe's problems: those from index `from` on, in the recipe's order. The fact
 * holds how many answers to each problem were right.
 */
export interface TasksMeasured {
  readonly type: 'tasks.measured'
  readonly at: number
  /** Name of the stage that is about to begin. */
  readonly stage: string
  /** 0-based position of that stage among the recipe's stages. */
  readonly index: number
  /** Index of the first measured problem, in the recipe's order. */
  readonly from: number
  /** Number of answers asked for each problem. */
  readonly samples: number
  /** Number of solved answers of each problem, at most `samples`; an answer that failed to run counts as not solved. */
  readonly solved: readonly number[]
  /** Epoch of the learner role that writes. A fact without one always counts, whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/**
 * A step is over, and all of its groups are selected or rejected. Holds the metrics of its rollouts and of its weight
 * update.
 */
export interface StepTallied {
  readonly type: 'step.tallied'
  readonly at: number
  readonly step: number
  readonly metrics: Metrics
  /** Epoch of the learner role that writes. A fact without one always counts, whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/** A record could not be read, or crashed its reader three times. It was copied to `dead-letters` and is skipped. */
export interface RecordRefused {
  readonly type: 'record.refused'
  /** Time at which the record was written, so that every process that refuses the record writes the same fact. */
  readonly at: number
  /** Position of the record: topic as it is named on the bus, partition, offset. */
  readonly origin: string
  readonly error: string
}

/** A condition that needs a person's attention was found in the run. */
export interface AlarmRaised {
  readonly type: 'alarm.raised'
  readonly at: number
  /** Name of the alarm: a built-in rule or one of the recipe's, `run-failed`, `tools-unserved` or `disk-full`. */
  readonly alarm: string
  readonly message: string
  /** Epoch of the learner role that writes. A fact without one always counts, whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/**
 * Order of a person to a run. pause: no new turn, draw or optimizer step begins; those that run are finished, and
 * deadlines stand still. resume: cancels a pause or a drain. drain: cancels a pause; no new step is drawn, and the run
 * ends once the steps that were drawn are over. abort: the run ends at once.
 */
export type ControlOrder = 'pause' | 'resume' | 'drain' | 'abort'

/**
 * The run accepted an order of a person, which is in force from here on. A pause stays in force after a crash and a
 * resume of the run (`run.resumed`); that resume ends a drain or an abort.
 */
export interface ControlObeyed {
  readonly type: 'control.obeyed'
  readonly at: number
  /** Id of the order. */
  readonly id: string
  /** Offset of the order's `run.control` in the topic `control`. */
  readonly offset: number
  readonly order: ControlOrder
  readonly reason: string
  /** Epoch of the learner role that writes. */
  readonly learnerEpoch?: Epoch
}

export type RunFact =
  | RunStarted
  | RunResumed
  | RunFinished
  | EngineJoined
  | EngineLeft
  | WeightsApplied
  | EngineSlept
  | EngineWoke
  | EvaluationCompleted
  | CurriculumAdvanced
  | DrawsClaimed
  | TasksMeasured
  | StepTallied
  | TrajectoryForked
  | RecordRefused
  | AlarmRaised
  | ControlObeyed
