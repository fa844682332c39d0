/**
 * Facts of the `trajectories` topic: what happened to one rollout and to its group.
 *
 * All facts of a group are in one partition (key: the group), in order. A decision carries the `epoch` of the partition
 * owner that took it, an answer carries the `attempt` that it answers; the fold (the update of a state by the next
 * fact) ignores a decision of an older epoch and an answer to an older attempt. `turn` and `call` are 0-based. `at` is
 * the writer's clock in ms since 1970. Among the decisions, only deadlines depend on `at`, and a deadline that passed
 * is itself a fact.
 */
import type { EngineId, Epoch, ExecutorId, GroupId, PolicyVersion, TrajectoryId } from '../ids'
import type { CurriculumClaimed, PartitionClaimed, SchedulerClaimed } from './claims'
import type { FilesChanged, StepEnd } from './files'
import type { RolloutRequested, RolloutStarted, Sampling } from './request'

/**
 * The coordinator (for an agent's call: the gateway) asked for one generation. Attempts of a turn are numbered from 0;
 * a request counts only if its attempt is above those of all earlier requests for the turn.
 */
export interface TurnAsked {
  readonly type: 'turn.asked'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly epoch: Epoch
  /**
   * Preferred engine: that of the trajectory's latest generation (in an agent's call: of the call that it continues),
   * which may hold the KV cache; null if there is none, or if it was interrupted for another reason than `aborted`.
   */
  readonly engine: EngineId | null
  readonly seed: number
  readonly sampling: Sampling
  /**
   * Upper bound on the tokens to sample in this attempt; tokens that interrupted attempts of the turn sampled are
   * already subtracted.
   */
  readonly maxTokens: number
  /** Number of tokens of the context, those that interrupted attempts of the turn sampled included. */
  readonly contextTokens: number
  /** sha256 of the context's token ids (Int32, little-endian), hex. */
  readonly contextDigest: string
}

/** Range [start, end) of positions in the attempt's `tokens` that one policy version sampled. */
export interface PolicySegment {
  readonly policyVersion: PolicyVersion
  readonly start: number
  readonly end: number
}

/** Times of one generation, ms since 1970, on the clock of the engine or of the process that drives it. */
export interface TurnTiming {
  readonly queuedAt: number
  readonly startedAt: number
  readonly firstTokenAt: number
  readonly endedAt: number
}

/** The model finished one generation. The fact answers the `turn.asked` of the same attempt. */
export interface TurnCompleted {
  readonly type: 'turn.completed'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly engine: EngineId
  /** [n] token ids that this attempt sampled, never re-tokenised; those of interrupted attempts are not among them. */
  readonly tokens: Int32Array
  /** [n] natural-log probability of each token, under the distribution that it was sampled from. */
  readonly logprobs: Float32Array
  /** [n] entropy in nats of the distribution each token was drawn from; absent unless the engine was asked for it. */
  readonly entropies?: Float32Array
  /** Text of the whole turn, with its special tokens. */
  readonly text: string
  /**
   * Reason for the end of the generation. stop: a stop token was sampled. length: `maxTokens` were sampled, or the
   * engine's context was full.
   */
  readonly finish: 'stop' | 'length'
  /** Policy versions that sampled the tokens, as ranges in order. */
  readonly segments: readonly PolicySegment[]
  /** Number of context tokens that the engine found in its KV cache; 0 if the engine does not report it. */
  readonly cachedTokens: number
  /**
   * Number of times that the engine dropped the generation's KV and recomputed it; 0 if the engine does not report it.
   */
  readonly preemptions: number
  readonly timing: TurnTiming
}

/** A generation ended early. The turn's next attempt, if there is one, continues after these tokens. */
export interface TurnInterrupted {
  readonly type: 'turn.interrupted'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly engine: EngineId
  /** [n] token ids sampled in this attempt. */
  readonly tokens: Int32Array
  /** [n] natural-log probability of each token, under the distribution that it was sampled from. */
  readonly logprobs: Float32Array
  /** [n] entropy in nats of the distribution each token was drawn from; absent unless the engine was asked for it. */
  readonly entropies?: Float32Array
  readonly segments: readonly PolicySegment[]
  /**
   * Reason for the interruption. `not-decoded`: the renderer did not decode what the engine had sampled; the engine is
   * not at fault.
   */
  readonly reason: 'aborted' | 'engine-lost' | 'engine-error' | 'too-long' | 'not-recorded' | 'not-decoded'
  /** Error message of the engine; empty when it gave none. */
  readonly error: string
}

/** Outcome of a tool call. RoC (resampling on correct) counts every outcome except `ok` as a failed call. */
export type ToolStatus = 'ok' | 'error' | 'timeout' | 'malformed' | 'unknown-tool'

/** The coordinator asked for the execution of a well-formed call of a known tool (`tool.execute`). */
export interface ToolAsked {
  readonly type: 'tool.asked'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly call: number
  readonly attempt: number
  readonly epoch: Epoch
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
}

/**
 * A tool call has its result: from an executor, or from the coordinator if the call was malformed or its tool unknown.
 */
export interface ToolCompleted {
  readonly type: 'tool.completed'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly call: number
  readonly attempt: number
  readonly tool: string
  readonly status: ToolStatus
  /** Result text that the model is shown. */
  readonly text: string
  readonly stdout: string
  readonly stderr: string
  /** Exit code of the executed program; null when a signal ended it, or when it never ran. */
  readonly exitCode: number | null
  /** Name of the signal that killed the code; absent when none did, and when the sandbox ended it at its deadline. */
  readonly signal?: string
  readonly wallMs: number
  readonly cpuMs: number
  /** Executor that answered the call; null when the call was not sent to one. */
  readonly executor: ExecutorId | null
  /** Files of the rollout's environment after the call; absent if the call left them as they were, or there is none. */
  readonly files?: FilesChanged
  /** Step of the task that this call of `submit` ended; absent for the last step, and for a task of one step. */
  readonly step?: StepEnd
}

/** The tool responses of a turn and the next generation prompt were rendered, once, and appended to the context. */
export interface ContextAppended {
  readonly type: 'context.appended'
  readonly at: number
  readonly trajectory: TrajectoryId
  /** Turn that the appended tokens follow. */
  readonly turn: number
  readonly epoch: Epoch
  readonly text: string
  /** [n] ids of the appended tokens. */
  readonly tokens: Int32Array
}

/**
 * Outcome of a rollout. answered: the model or the agent ended it. truncated: out of tokens or turns. failed: no engine
 * could generate a turn (faults, a context too long for every engine, no recorded answer), its agent failed, or the
 * group was closed before the rollout's end; a failed rollout never counts as a negative.
 */
export type Outcome = 'answered' | 'truncated' | 'failed'

/** A rollout has ended, by its answer, at a limit, or by a fault. */
export interface RolloutFinished {
  readonly type: 'rollout.finished'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly epoch: Epoch
  readonly outcome: Outcome
  readonly reason: string
  readonly turns: number
  /** Number of tokens that the model sampled. */
  readonly sampledTokens: number
  /**
   * Number of tokens after the prompt, which `limits.responseTokens` bounds: sampled ones, and those of tool responses
   * with their template. Absent in facts of earlier versions, and at the end of a captured session.
   */
  readonly responseTokens?: number
  readonly toolCalls: number
  /** Number of tool calls with another status than `ok`. */
  readonly toolErrors: number
  /** Number of `<answer>` elements in the text that the model wrote. */
  readonly answerTags: number
}

/** A finished rollout got its reward: from the verifier or, in a captured session, from the agent or the client. */
export interface RewardAssigned {
  readonly type: 'reward.assigned'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly attempt: number
  readonly reward: number
  /** Answer that was judged, as extracted from the response; '' if no verifier judged it. */
  readonly answer: string
  /** Name of the verifier's rule that decided the reward, or the key under which an agent or a client gave it. */
  readonly how: string
  /** Explanation of the reward, in words. */
  readonly why?: string
}

/**
 * The reward could not be computed: the judge raised, hung, refused or gave no number. The rollout never counts as a
 * negative.
 */
export interface RewardFailed {
  readonly type: 'reward.failed'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly attempt: number
  /** Kind of fault: one word (`raised`, `timeout`, …), or the code or name of the judge's error. */
  readonly how: string
  readonly why: string
}

/** A group waits for no more members: each has a reward or has failed, or the group's deadline has passed. */
export interface GroupClosed {
  readonly type: 'group.closed'
  readonly at: number
  readonly group: GroupId
  readonly epoch: Epoch
  readonly reason: 'complete' | 'deadline'
  /** Indices of the members with a reward, ascending. */
  readonly rewarded: readonly number[]
}

/** Member of a selected group whose trajectory is trained on. */
export interface KeptMember {
  readonly member: number
  readonly reward: number
  readonly advantage: number
  /**
   * p_err (tool errors) + p_format (answer tags), each only if the recipe includes it. A high penalty lowers the chance
   * that a positive is kept.
   */
  readonly penalty: number
}

/** Member of a selected group that has a reward but was not selected, so its trajectory is not trained on. */
export interface DroppedMember {
  readonly member: number
  readonly reward: number
  readonly penalty: number
}

/**
 * RoC selected the members of a group to train on. Seed, rewards and penalties, with the recipe's options, suffice to
 * make the same choice again; the advantages also need the rollouts' lengths if the recipe has `train.overlong`.
 */
export interface GroupSelected {
  readonly type: 'group.selected'
  readonly at: number
  readonly group: GroupId
  readonly epoch: Epoch
  readonly step: number
  /** Variant of the selection: `paper`, `release`, `none` or `all`. */
  readonly selection: string
  /** Name of the random generator. */
  readonly generator: string
  /** Seed of the random generator. */
  readonly seed: number
  /**
   * True: every rewarded member was kept, because exactly G have a reward, because positives and negatives would both
   * fall below their floor, or because the variant is `all`.
   */
  readonly whole: boolean
  readonly kept: readonly KeptMember[]
  readonly dropped: readonly DroppedMember[]
}

/** A group was rejected: no member of it is trained on. */
export interface GroupRejected {
  readonly type: 'group.rejected'
  readonly at: number
  readonly group: GroupId
  readonly epoch: Epoch
  readonly step: number
  readonly reason: 'equal-rewards' | 'too-few-rewarded'
  /** Number of members with a reward. */
  readonly rewarded: number
  readonly meanReward: number
}

export type TrajectoryFact =
  | PartitionClaimed
  | SchedulerClaimed
  | CurriculumClaimed
  | RolloutRequested
  | RolloutStarted
  | TurnAsked
  | TurnCompleted
  | TurnInterrupted
  | ToolAsked
  | ToolCompleted
  | ContextAppended
  | RolloutFinished
  | RewardAssigned
  | RewardFailed
  | GroupClosed
  | GroupSelected
  | GroupRejected
