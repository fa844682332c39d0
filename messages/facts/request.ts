/**
 * What a rollout is asked for with: the task, how its tokens are drawn, and what it may use. The first fact of a trajectory.
 */
import type { Epoch, GroupId, PolicyVersion, TaskId, TrajectoryId } from '../ids'

export type Purpose = 'train' | 'eval' | 'fork' | 'chat'

/** How tokens are drawn. Training refuses topP < 1, topK > 0 and minP > 0: the logprobs would be of another policy. */
export interface Sampling {
  readonly temperature: number
  readonly topP: number
  /** 0 means no limit. */
  readonly topK: number
  readonly minP: number
  readonly stopTokens: readonly number[]
}

/** What a rollout may use before it is truncated. Tool and template tokens count as context and as response. */
export interface RolloutLimits {
  /** Prompt and response together, tokens. */
  readonly contextTokens: number
  /** Everything after the prompt, tokens. */
  readonly responseTokens: number
  readonly turns: number
  readonly callsPerTurn: number
  readonly toolTimeoutMs: number
  /** Characters of a tool's answer that the model sees; the middle is cut. */
  readonly toolResponseChars: number
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
}

export interface Task {
  readonly id: TaskId
  readonly messages: readonly ChatMessage[]
  /** What the verifier compares with. */
  readonly truth: string
  /** Which reward judges it; empty: the recipe's `reward.name`. */
  readonly reward: string
  /** What else a reward, or a person, needs to know of it: plain data, as JSON has it. */
  readonly metadata?: Readonly<Record<string, unknown>>
}

/** A rollout of a task was asked for. Its prompt is rendered here, once. */
export interface RolloutRequested {
  readonly type: 'rollout.requested'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly group: GroupId
  readonly member: number
  /** Members of the group: 2G. */
  readonly groupSize: number
  readonly purpose: Purpose
  /** The optimizer step (or the evaluation) that this rollout is meant for. */
  readonly step: number
  /** Start order in the run; smaller is older. It is also the engine's priority. */
  readonly order: number
  readonly task: Task
  /** [n] rendered prompt with the generation prompt at its end. */
  readonly tokens: Int32Array
  readonly tools: readonly string[]
  readonly limits: RolloutLimits
  readonly sampling: Sampling
  readonly seed: number
  /** The oldest policy that may sample it. */
  readonly minVersion: PolicyVersion
  /** ms after the request until the group is closed without this member. */
  readonly deadlineMs: number
  /** Of the curriculum that asks; without, whoever asks is not fenced. */
  readonly learnerEpoch?: Epoch
}
