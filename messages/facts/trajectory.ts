/**
 * Facts of the `trajectories` topic: what happened to one rollout, and to its group. They are the truth of a run.
 *
 * All facts of a group share a partition (key: the group), in order. Decisions carry the epoch of the owner that took
 * them, answers the attempt that they answer; a fold ignores both when they are not the latest (DESIGN §3).
 * `at` is the writer's clock in ms since 1970. Only deadlines read it, and a deadline that passed is itself a fact.
 */
import type { EngineId, Epoch, ExecutorId, GroupId, PolicyVersion, TrajectoryId } from '../ids'
import type { RolloutRequested, Sampling } from './request'

/** A process took over a partition. Its offset is the partition's epoch from here on. */
export interface PartitionClaimed {
  readonly type: 'partition.claimed'
  readonly at: number
  readonly partition: number
  readonly owner: string
}

/** A process took over as scheduler: what was asked before this, and has no answer, it does not know of. */
export interface SchedulerClaimed {
  readonly type: 'scheduler.claimed'
  readonly at: number
  readonly partition: number
  readonly owner: string
}

/** A process took over as curriculum: what an earlier one asks for in this partition after this is not heard. */
export interface CurriculumClaimed {
  readonly type: 'curriculum.claimed'
  readonly at: number
  readonly partition: number
  readonly owner: string
  /** Offset of its `learner.claimed`. One that comes late, with a lower epoch than an earlier claim, claims nothing. */
  readonly learnerEpoch: Epoch
}

/** A generation was asked for. Attempts count from 0 and never come back. */
export interface TurnAsked {
  readonly type: 'turn.asked'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly epoch: Epoch
  /** The engine that holds the trajectory's KV cache, if one is known: a preference. */
  readonly engine: EngineId | null
  readonly seed: number
  readonly sampling: Sampling
  readonly maxTokens: number
  readonly contextTokens: number
  /** sha256 of the context's token ids (Int32, little-endian), hex. */
  readonly contextDigest: string
}

/** Tokens [start, end) of a turn were sampled under one policy. */
export interface PolicySegment {
  readonly policyVersion: PolicyVersion
  readonly start: number
  readonly end: number
}

/** ms since 1970 on the engine's clock. */
export interface TurnTiming {
  readonly queuedAt: number
  readonly startedAt: number
  readonly firstTokenAt: number
  readonly endedAt: number
}

/** A model finished one generation. Answers the `turn.asked` of the same attempt. */
export interface TurnCompleted {
  readonly type: 'turn.completed'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly engine: EngineId
  /** [n] as sampled, never re-tokenised. After an interruption: what came after it. */
  readonly tokens: Int32Array
  /** [n] natural log, under the distribution sampled from. */
  readonly logprobs: Float32Array
  /** [n] nats, of the distributions that the tokens were drawn from, where the engine was asked for them. */
  readonly entropies?: Float32Array
  /** The whole turn's text, special tokens kept. */
  readonly text: string
  readonly finish: 'stop' | 'length'
  readonly segments: readonly PolicySegment[]
  readonly cachedTokens: number
  readonly preemptions: number
  readonly timing: TurnTiming
}

/** A generation ended early. The turn goes on from these tokens under the next attempt. */
export interface TurnInterrupted {
  readonly type: 'turn.interrupted'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly engine: EngineId
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  /** [n] nats, of the distributions that the tokens were drawn from, where the engine was asked for them. */
  readonly entropies?: Float32Array
  readonly segments: readonly PolicySegment[]
  readonly reason: 'aborted' | 'engine-lost' | 'engine-error' | 'too-long' | 'not-recorded'
  readonly error: string
}

/** How a tool call ended; everything but `ok` is a failed call for RoC. */
export type ToolStatus = 'ok' | 'error' | 'timeout' | 'malformed' | 'unknown-tool'

/** A well-formed call of a known tool was handed to the executors. */
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

/** A call has its result: from an executor, or from the coordinator when it could not be called at all. */
export interface ToolCompleted {
  readonly type: 'tool.completed'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly call: number
  readonly attempt: number
  readonly tool: string
  readonly status: ToolStatus
  /** What the model is shown. */
  readonly text: string
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number | null
  readonly wallMs: number
  readonly cpuMs: number
  /** null when no executor was asked. */
  readonly executor: ExecutorId | null
}

/** Tool responses and the next generation prompt were rendered, once, as a delta to the context. */
export interface ContextAppended {
  readonly type: 'context.appended'
  readonly at: number
  readonly trajectory: TrajectoryId
  /** The turn whose answer this follows. */
  readonly turn: number
  readonly epoch: Epoch
  readonly text: string
  readonly tokens: Int32Array
}

/** answered: the model ended by itself. truncated: out of budget. failed: ours to blame, never a negative. */
export type Outcome = 'answered' | 'truncated' | 'failed'

export interface RolloutFinished {
  readonly type: 'rollout.finished'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly epoch: Epoch
  readonly outcome: Outcome
  readonly reason: string
  readonly turns: number
  /** Tokens that the model sampled. */
  readonly sampledTokens: number
  readonly toolCalls: number
  readonly toolErrors: number
  /** `<answer>` elements in what the model wrote. */
  readonly answerTags: number
}

export interface RewardAssigned {
  readonly type: 'reward.assigned'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly attempt: number
  readonly reward: number
  readonly answer: string
  /** Which rule decided. */
  readonly how: string
  /** In words. */
  readonly why?: string
}

/** No reward could be had: the judge raised, hung, refused or said no number. Ours to blame: the rollout is no negative. */
export interface RewardFailed {
  readonly type: 'reward.failed'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly attempt: number
  /** What went wrong, in a word: `raised`, `timeout`, … */
  readonly how: string
  readonly why: string
}

/** No more members are waited for. */
export interface GroupClosed {
  readonly type: 'group.closed'
  readonly at: number
  readonly group: GroupId
  readonly epoch: Epoch
  readonly reason: 'complete' | 'deadline'
  /** Members with a reward, ascending. */
  readonly rewarded: readonly number[]
}

export interface KeptMember {
  readonly member: number
  readonly reward: number
  readonly advantage: number
  readonly penalty: number
}

export interface DroppedMember {
  readonly member: number
  readonly reward: number
  readonly penalty: number
}

/** RoC's decision about a group: everything that a rerun needs stands in it. */
export interface GroupSelected {
  readonly type: 'group.selected'
  readonly at: number
  readonly group: GroupId
  readonly epoch: Epoch
  readonly step: number
  readonly selection: string
  /** Name of the random generator and the seed it was given. */
  readonly generator: string
  readonly seed: number
  readonly whole: boolean
  readonly kept: readonly KeptMember[]
  readonly dropped: readonly DroppedMember[]
}

export interface GroupRejected {
  readonly type: 'group.rejected'
  readonly at: number
  readonly group: GroupId
  readonly epoch: Epoch
  readonly step: number
  readonly reason: 'equal-rewards' | 'too-few-rewarded'
  readonly rewarded: number
  readonly meanReward: number
}

export type TrajectoryFact =
  | PartitionClaimed
  | SchedulerClaimed
  | CurriculumClaimed
  | RolloutRequested
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
