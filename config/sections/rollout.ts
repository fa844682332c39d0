/** The recipe's limits of a rollout (tokens, turns, tool calls); how rollouts are grouped, sampled and timed out. */
import { z } from 'zod'
import { count, positive } from './numbers'

export const limitsSection = z.strictObject({
  contextTokens: positive.default(8192),
  /**
   * Upper bound on the tokens of the prompt; training skips a task with a longer prompt, an evaluation keeps it.
   * Default: the longest prompt that fits the context.
   */
  promptTokens: positive.optional(),
  responseTokens: positive.default(8192),
  turns: positive.default(10),
  callsPerTurn: positive.default(1),
  toolTimeoutMs: positive.default(4000),
  toolResponseChars: positive.default(2000),
})

/** Overrides of the recipe's limits, for a stage or for evaluations. */
export const limitsOverride = z.strictObject({
  contextTokens: positive.optional(),
  promptTokens: positive.optional(),
  responseTokens: positive.optional(),
  turns: positive.optional(),
  callsPerTurn: positive.optional(),
  toolTimeoutMs: positive.optional(),
  toolResponseChars: positive.optional(),
})

const sampling = z.strictObject({
  temperature: z.number().nonnegative().default(1),
  topP: z.number().positive().max(1).default(1),
  topK: count.default(0),
  minP: z.number().min(0).max(1).default(0),
})

export const rolloutSection = z.strictObject({
  /** Number of rollouts of one task (2G in the paper). */
  groupSize: positive.min(2).default(32),
  groupsPerStep: positive.default(512),
  sampling: sampling.prefault({}),
  /**
   * Milliseconds from the time at which the last rollout of a training group began its first generation to the closing
   * of the group; rollouts that have no reward by then are left out. The wait for the first generation does not count;
   * a takeover of the partition restarts the time. Groups of evaluations have no deadline.
   */
  deadlineMs: positive.default(1_800_000),
  /**
   * Milliseconds after which an unanswered turn is asked again. For a rollout that waits for its first generation, the
   * time doubles with each repetition.
   */
  turnTimeoutMs: positive.default(600_000),
  maxStaleness: count.default(0),
})
