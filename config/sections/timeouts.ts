/**
 * Timeouts of engines, trainer and weights, in milliseconds. A timeout that the recipe leaves out is a multiple of the
 * estimated duration, and at least a floor (config/estimate/timeouts.ts); `troupe config print` shows it.
 */
import { z } from 'zod'
import { positive } from './numbers'

/** Longest time that a timer of Node can wait, in milliseconds: 24.8 days. */
export const longestTimerMs = 2 ** 31 - 1
const timeout = positive.max(longestTimerMs).optional()

export const timeoutsSection = z.strictObject({
  /** Deadline for the start of the trainer's processes, with the load of the model. */
  trainerStartMs: timeout,
  /** Deadline of one optimizer step, all of its inner steps included. */
  stepMs: timeout,
  /** Deadline of the whole cold start. */
  sftMs: timeout,
  /** Deadline for writing a checkpoint, or weights to publish. */
  saveMs: timeout,
  /** Deadline for loading a checkpoint. */
  loadMs: timeout,
  /**
   * Deadline in ms for the wait of one rank of the trainer for another, such as for the one that writes a checkpoint.
   */
  rankWaitMs: timeout,
  /**
   * Deadline for the start of a local engine, with the load of the model; `engine.launch.startTimeoutMs` is that of a
   * launched server.
   */
  engineStartMs: timeout,
  /** Deadline for loading new weights into a running engine. */
  weightUpdateMs: timeout,
  /**
   * Time after the first engine has loaded new weights at which an engine without these weights is removed, if a turn
   * waits for these weights.
   */
  weightsBehindMs: timeout,
  /** Time from the first attempt to fetch a file of weights over HTTP, after which no further attempt begins. */
  fetchWeightsMs: timeout,
  /** Deadline in ms for the first token of a turn at an inference server. */
  firstTokenMs: timeout,
})

export type TimeoutName = keyof z.output<typeof timeoutsSection>
export type Timeouts = Readonly<Record<TimeoutName, number>>
