/**
 * The first facts of a trajectory. `rollout.requested`: the task, the sampling parameters and the budget of the
 * rollout. `rollout.started`: its first turn went to an engine.
 */
import type { EngineId, Epoch, GroupId, PolicyVersion, TaskId, TrajectoryId } from '../ids'
import type { TaskEnvironment } from './files'

/**
 * The use of a rollout. eval: an evaluation, or a measurement before a stage. fork: continues a recorded trajectory.
 * chat: a person's chat.
 */
export type Purpose = 'train' | 'eval' | 'fork' | 'chat'

/**
 * Sampling parameters. Training refuses topP < 1, topK > 0 and minP > 0: the logprobs would belong to another
 * distribution than the policy's.
 */
export interface Sampling {
  readonly temperature: number
  readonly topP: number
  /** Number of most likely tokens to draw from; 0 means no limit. */
  readonly topK: number
  /** Minimum probability of a token, relative to the most likely one; 0 means no limit. */
  readonly minP: number
  /** Token ids that end a turn. */
  readonly stopTokens: readonly number[]
}

/**
 * Limits of a rollout. A rollout that reaches a bound on its tokens or turns is truncated. Tokens of tool responses and
 * of the chat template between turns count in both bounds on tokens.
 */
export interface RolloutLimits {
  /** Upper bound on prompt and response together, tokens. */
  readonly contextTokens: number
  /** Upper bound on everything after the prompt, tokens. */
  readonly responseTokens: number
  readonly turns: number
  /** Upper bound on the tool calls of one turn. Further calls are dropped: they get no answer and are not counted. */
  readonly callsPerTurn: number
  /** Wall-clock deadline of one tool call, ms; `submit` between two steps of a task has the task's own. */
  readonly toolTimeoutMs: number
  /**
   * Upper bound on the characters of a tool's answer that the model sees, the mark of the cut not counted; a longer
   * answer loses its middle. The instruction that `submit` returns may have 64 Ki characters.
   */
  readonly toolResponseChars: number
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
}

/** Task: a problem for the policy to solve. */
export interface Task {
  readonly id: TaskId
  /** Messages of the prompt, before the chat template. */
  readonly messages: readonly ChatMessage[]
  /** Reference answer that the verifier compares with. */
  readonly truth: string
  /** Name of the reward that judges the task; empty: the recipe's `reward.name`. */
  readonly reward: string
  /** Further data about the task, for a reward or a person; JSON values only. */
  readonly metadata?: Readonly<Record<string, unknown>>
  /** Environment that the rollout's tools act in; absent: the task has no files. */
  readonly environment?: TaskEnvironment
}

/**
 * A rollout of a task was requested: by the curriculum, a fork, a chat, or a client that opened a session at a gateway.
 * The prompt was rendered once, for this fact; nothing renders it again.
 */
export interface RolloutRequested {
  readonly type: 'rollout.requested'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /** 0-based index of the rollout in its group. */
  readonly member: number
  /** Number of rollouts in the group; in training with RoC it is 2G, twice the number that is trained on. */
  readonly groupSize: number
  readonly purpose: Purpose
  /**
   * Optimizer step that the rollout is meant for; for an evaluation or a measurement, the step after which it is made;
   * 0 for a chat.
   */
  readonly step: number
  /**
   * Start order in the run; smaller is older. It is also the priority that the rollout's requests have on an engine.
   */
  readonly order: number
  readonly task: Task
  /** [n] token ids of the rendered prompt, which ends with the generation prompt; empty in a client's session. */
  readonly tokens: Int32Array
  /** Names of the tools that the model may call. */
  readonly tools: readonly string[]
  readonly limits: RolloutLimits
  readonly sampling: Sampling
  /** Seed of the rollout; the seeds of its turns follow from it. */
  readonly seed: number
  /** Oldest policy version that may sample the rollout. */
  readonly minVersion: PolicyVersion
  /**
   * Milliseconds after which the group is closed without the members that have no reward yet; members that still run
   * fail. `deadlineFrom` says what the time counts from; a later claim of the partition restarts it. Evaluations have
   * no such deadline.
   */
  readonly deadlineMs: number
  /**
   * Time from which the deadline counts. start: the deadline counts from the latest `rollout.started` of the group's
   * members, and not before each member has started or ended. Absent: from the group's first request.
   */
  readonly deadlineFrom?: 'start'
  /**
   * Epoch of the curriculum that asks: the offset of its process's `learner.claimed`. A request without one always
   * counts, whichever curriculum is active.
   */
  readonly learnerEpoch?: Epoch
}

/**
 * The scheduler gave a rollout's first turn to an engine. A new scheduler, which does not know the turns assigned
 * before its claim, writes this fact again; so does a run that continues an imported or forked trajectory. The first
 * one counts.
 */
export interface RolloutStarted {
  readonly type: 'rollout.started'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly engine: EngineId
}
