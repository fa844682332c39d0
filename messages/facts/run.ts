/**
 * Facts of the `runs` topic: the start and end of a run, its engines, its evaluations, its curriculum, its alarms.
 * These facts alone tell under which recipe, code, seeds and versions the rest of the run's log was written.
 */
import type { EngineId, Epoch, GroupId, PolicyVersion, RunId, TrajectoryId } from '../ids'
import type { Metrics } from './learner'

/** A run began: everything that determines it. */
export interface RunStarted {
  readonly type: 'run.started'
  readonly at: number
  readonly run: RunId
  /** The resolved recipe; secrets are references. */
  readonly recipe: Readonly<Record<string, unknown>>
  /** sha256 digests, hex: of the recipe, of Troupe's sources, of the tokenizer's files. */
  readonly recipeDigest: string
  readonly codeDigest: string
  readonly tokenizerDigest: string
  readonly seed: number
  /** Versions of Troupe, Node, Python, torch, transformers. */
  readonly versions: Readonly<Record<string, string>>
  /** Number of partitions by topic. */
  readonly partitions: Readonly<Record<string, number>>
}

/** A process went on with a run that had begun earlier, under these digests. */
export interface RunResumed {
  readonly type: 'run.resumed'
  readonly at: number
  readonly run: RunId
  readonly recipeDigest: string
  readonly codeDigest: string
  readonly tokenizerDigest: string
}

/** A run ended. stopped: before its last step, by a signal, an alarm, or since no group was left that gives a gradient. */
export interface RunFinished {
  readonly type: 'run.finished'
  readonly at: number
  readonly run: RunId
  readonly outcome: 'done' | 'stopped' | 'failed'
  readonly reason: string
  /** Optimizer steps in all. */
  readonly steps: number
  /** Figures of the run; a live run writes none. */
  readonly summary: Readonly<Record<string, unknown>>
  /** Epoch of the learner role that writes. Without it the fact counts whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/** An engine takes turns from here on. */
export interface EngineJoined {
  readonly type: 'engine.joined'
  readonly at: number
  readonly engine: EngineId
  /** local, vllm, sglang, recorded, simulated, … */
  readonly kind: string
  readonly model: string
  /** Capacity of the KV cache. */
  readonly kvTokens: number
  /** The KV cache is allotted in blocks of this many tokens. */
  readonly blockTokens: number
  /** Sequences that it generates at once. */
  readonly maxSequences: number
  /** Longest sequence, prompt included. */
  readonly contextTokens: number
  /** The engine keeps one copy of a common prompt for a whole group. */
  readonly prefixSharing: boolean
  /** How the engine picks the victim of a preemption by `priority`: -1 the largest value first, 1 the smallest, 0 by another rule. */
  readonly prioritySign: -1 | 0 | 1
}

/** An engine takes no more turns. */
export interface EngineLeft {
  readonly type: 'engine.left'
  readonly at: number
  readonly engine: EngineId
  readonly reason: string
  /** The engine may join again after this time. Absent: at once. */
  readonly retryAfterMs?: number
}

/** The engine samples under this policy from here on. */
export interface WeightsApplied {
  readonly type: 'weights.applied'
  readonly at: number
  readonly engine: EngineId
  readonly version: PolicyVersion
  /** Digest of the weights, as in `weights.published`. */
  readonly digest: string
}

/** An evaluation ended: its score under one policy. */
export interface EvaluationCompleted {
  readonly type: 'evaluation.completed'
  readonly at: number
  /** Name of the evaluation in the recipe. */
  readonly name: string
  readonly step: number
  readonly version: PolicyVersion
  readonly passAt1: number
  /** Standard error of `passAt1`. */
  readonly standardError: number
  /** Problems with at least one judged answer; with n = 0 there is no score. */
  readonly n: number
  /** Judged answers of the problem that has most. */
  readonly samples: number
  readonly metrics: Metrics
  /** Problems that were asked, and answers asked for each; absent in older logs. */
  readonly asked?: { readonly problems: number; readonly samples: number }
  /** Epoch of the learner role that writes. Without it the fact counts whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/** The curriculum drew tasks for a step. The next draw begins with group `cursor`. */
export interface CurriculumAdvanced {
  readonly type: 'curriculum.advanced'
  readonly at: number
  readonly step: number
  /** measure: to find how often the policy solves them, for a stage that is about to begin. */
  readonly purpose: 'train' | 'eval' | 'measure'
  readonly groups: readonly GroupId[]
  /** Groups drawn so far for this purpose; which task a group gets follows from its number alone. */
  readonly cursor: number
  /** Start order of the next rollout. */
  readonly order: number
  /** End offset of each partition of `trajectories` before the draw: no fact of these groups has a lower offset. */
  readonly begins?: readonly number[]
  /** Epoch of the curriculum that writes. */
  readonly learnerEpoch?: Epoch
}

/** A process took over as curriculum. Draws that an earlier curriculum reports after this fact are ignored. */
export interface DrawsClaimed {
  readonly type: 'draws.claimed'
  readonly at: number
  /** Name of the process. */
  readonly owner: string
  /** Offset of the process's `learner.claimed`. */
  readonly learnerEpoch: Epoch
}

/** The trajectory `child` shares the first `turn` turns with `parent` and goes on by itself. */
export interface TrajectoryForked {
  readonly type: 'trajectory.forked'
  readonly at: number
  readonly parent: TrajectoryId
  readonly child: TrajectoryId
  readonly turn: number
  /** Run of the parent, where it is another one. */
  readonly parentRun?: RunId
}

/** How often the policy solved some of the recipe's problems: those from index `from` on, in the recipe's order. */
export interface TasksMeasured {
  readonly type: 'tasks.measured'
  readonly at: number
  /** Name and 0-based position of the stage that is about to begin. */
  readonly stage: string
  readonly index: number
  readonly from: number
  /** Answers asked for each problem. */
  readonly samples: number
  /** Solved answers of each problem, at most `samples`; an answer that failed to run counts as not solved. */
  readonly solved: readonly number[]
  /** Epoch of the learner role that writes. Without it the fact counts whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/** All rollouts of a step have ended: their measurements, beside those of the update in `step.completed`. */
export interface StepTallied {
  readonly type: 'step.tallied'
  readonly at: number
  readonly step: number
  readonly metrics: Metrics
  /** Epoch of the learner role that writes. Without it the fact counts whichever process is active. */
  readonly learnerEpoch?: Epoch
}

/** A record could not be read, or crashed its receiver three times. It was copied to `dead-letters` and is skipped. */
export interface RecordRefused {
  readonly type: 'record.refused'
  /** Time at which the record had been written, so that every process that refuses it writes the same fact. */
  readonly at: number
  /** The record's place: topic as it is named on the bus, partition, offset. */
  readonly origin: string
  readonly error: string
}

/** Something in the run needs a person's attention. */
export interface AlarmRaised {
  readonly type: 'alarm.raised'
  readonly at: number
  /** Name of the alarm: one of the recipe's `alarms`, `run-failed` or `tools-unserved`. */
  readonly alarm: string
  readonly message: string
  /** Epoch of the learner role that writes. Without it the fact counts whichever process is active. */
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
