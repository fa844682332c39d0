/**
 * Defines a trace, the simulator's load: trajectories with their arrival, prompt, turns and tool latencies.
 *
 * in   a trace and an engine model        out  its first fault in words, or null
 * Invariant of a trace without fault: ids are unique, every trajectory fits an engine alone, times are plausible in ms.
 */
import { capacityBlocks, type EngineModel } from './engineModel'

export interface TracedTurn {
  /** Number of tokens that the turn samples, at least one. */
  readonly newTokens: number
  /** Milliseconds from the turn's end to the tool's answer. Ignored after the last turn. */
  readonly toolMs: number
  /** Number of tokens that the tool's answer adds to the context. */
  readonly toolTokens: number
}

/** Trajectory of a trace: one line of a trace file. */
export interface TracedTrajectory {
  readonly trajectoryId: string
  /** Group of the trajectory; its members share their prompt. */
  readonly groupId: string
  readonly arrivalMs: number
  readonly promptTokens: number
  readonly turns: readonly TracedTurn[]
}

/**
 * Upper bound on a trajectory's arrival (from the trace's first arrival) plus its tool times, ms. Beyond it, sums of
 * times in a double lose fractions of a ms.
 */
const longestWaitMs = 2 ** 46

export const firstArrivalMs = (trace: readonly TracedTrajectory[]): number =>
  trace.reduce((first, { arrivalMs }) => Math.min(first, arrivalMs), Number.POSITIVE_INFINITY)

/**
 * Returns the number of a trajectory's tokens at its end: prompt, sampled and tool tokens. Leaves out the last tool
 * answer, which is never read.
 */
export function finalTokens({ promptTokens, turns }: TracedTrajectory): number {
  return turns.reduce((sum, { newTokens, toolTokens }, i) => {
    return sum + newTokens + (i < turns.length - 1 ? toolTokens : 0)
  }, promptTokens)
}

export const sampledTokens = ({ turns }: TracedTrajectory): number =>
  turns.reduce((sum, { newTokens }) => sum + newTokens, 0)

/** Returns a message if a trajectory needs more KV than the engine has; null if it fits. */
export function roomFault(one: TracedTrajectory, model: EngineModel): string | null {
  const room = capacityBlocks(model) * model.blockTokens
  // The last sampled token is not cached, so it needs no room. But a turn of one token needs room for a token after its
  // context.
  const needs = finalTokens(one) - (one.turns.at(-1)!.newTokens > 1 ? 1 : 0)
  if (needs <= room) return null
  return `trajectory '${one.trajectoryId}' needs ${needs} tokens of KV, and engine ${model.name} has ${room} in whole blocks (kvTokens ${model.kvTokens}, blockTokens ${model.blockTokens})`
}

/** Returns the trace's first fault for this engine as a message for the user; null if there is none. */
export function traceFault(trace: readonly TracedTrajectory[], model: EngineModel): string | null {
  if (trace.length === 0) return 'the trace has no trajectory'
  const seen = new Set<string>()
  const firstMs = firstArrivalMs(trace)
  for (const one of trace) {
    const waitsMs = one.turns.reduce((sum, { toolMs }) => sum + toolMs, one.arrivalMs - firstMs)
    if (!(waitsMs <= longestWaitMs)) {
      return `trajectory '${one.trajectoryId}' waits ${waitsMs} ms for its arrival and its tools, counted from the first arrival, expected at most ${longestWaitMs} ms: give all times in ms since the trace's start`
    }
    if (seen.has(one.trajectoryId)) return `trajectoryId '${one.trajectoryId}' occurs twice`
    seen.add(one.trajectoryId)
    const fault = roomFault(one, model)
    if (fault !== null) return fault
  }
  return null
}
