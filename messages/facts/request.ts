/**
 * `rollout.requested`, the first fact of a trajectory: the task, the sampling parameters and the budget of the rollout.
 */
import type { Epoch, GroupId, PolicyVersion, TaskId, TrajectoryId } from '../ids'

/** The use of a rollout: training, evaluation, a fork of a recorded trajectory, or a chat. */
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
  /** Least probability of a token, relative to the most likely one; 0 means no limit. */
  readonly minP: number
  /** Token ids that end a turn. */
  readonly stopTokens: readonly number[]
}

/** Budget of a rollout: it is truncated when one limit is reached. Tool and template tokens count as context and as response. */
export interface RolloutLimits {
  /** Prompt and response together, tokens. */
  readonly contextTokens: number
  /** Everything after the prompt, tokens. */
  readonly responseTokens: number
  readonly turns: number
  /** Tool calls in one turn. */
  readonly callsPerTurn: number
  /** Wall clock of one tool call. */
  readonly toolTimeoutMs: number
  /** Characters of a tool's answer that the model sees; a longer one loses its middle. */
  readonly toolResponseChars: number
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
}

/** A problem for the policy to solve. */
export interface Task {
  readonly id: TaskId
  /** The prompt, before the chat template. */
  readonly messages: readonly ChatMessage[]
  /** The right answer, which the verifier compares with. */
  readonly truth: string
  /** Name of the reward that judges it; empty: the recipe's `reward.name`. */
  readonly reward: string
  /** More about the task, for a reward or a person: plain data, as in JSON. */
  readonly metadata?: Readonly<Record<string, unknown>>
}

/** The curriculum asked for a rollout of a task. The prompt is rendered here, once; nothing renders it again. */
export interface RolloutRequested {
  readonly type: 'rollout.requested'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  /** 0-based position in the group. */
  readonly member: number
  /** Members of the group: 2G. */
  readonly groupSize: number
  readonly purpose: Purpose
  /** The optimizer step (or the evaluation) that this rollout is meant for. */
  readonly step: number
  /** Start order in the run; smaller is older. It is also the engine's priority. */
  readonly order: number
  readonly task: Task
  /** [n] the rendered prompt; it ends with the generation prompt. */
  readonly tokens: Int32Array
  /** Names of the tools that the model may call. */
  readonly tools: readonly string[]
  readonly limits: RolloutLimits
  readonly sampling: Sampling
  /** Seed of the rollout; the seeds of its turns follow from it. */
  readonly seed: number
  /** Oldest policy that may sample it. */
  readonly minVersion: PolicyVersion
  /** ms after the request until the group is closed without this member. */
  readonly deadlineMs: number
  /** Epoch of the curriculum that asks. Without it the request counts whatever curriculum is active. */
  readonly learnerEpoch?: Epoch
}
