/**
 * A load for the simulator: trajectories with their arrival, prompt, turns, and how long their tools take (DESIGN §9).
 * Invariant of what `traceFault` lets pass: ids are unique, every trajectory fits the engine alone, and no time is so long
 * that it was not meant in ms.
 */
import { capacityBlocks, type EngineModel } from './engineModel'

export interface TracedTurn {
  /** Sampled tokens; at least one. */
  readonly newTokens: number
  /** From the turn's end until the tool has answered. After the last turn nothing is waited for. */
  readonly toolMs: number
  /** What the tool's answer adds to the context. */
  readonly toolTokens: number
}

/** A line of a trace file. */
export interface TracedTrajectory {
  readonly trajectoryId: string
  /** Members of a group share their prompt. */
  readonly groupId: string
  readonly arrivalMs: number
  readonly promptTokens: number
  readonly turns: readonly TracedTurn[]
}

/** What arrivals and tools may add up to: beyond it, sums of times no longer tell steps of a fraction of a ms apart. */
const longestWaitMs = 2 ** 46

export const firstArrivalMs = (trace: readonly TracedTrajectory[]): number =>
  trace.reduce((first, { arrivalMs }) => Math.min(first, arrivalMs), Number.POSITIVE_INFINITY)

/** Prompt, sampled and tool tokens at its end; the last answer of a tool is never read. */
export function finalTokens({ promptTokens, turns }: TracedTrajectory): number {
  return turns.reduce((sum, { newTokens, toolTokens }, i) => {
    return sum + newTokens + (i < turns.length - 1 ? toolTokens : 0)
  }, promptTokens)
}

export const sampledTokens = ({ turns }: TracedTrajectory): number =>
  turns.reduce((sum, { newTokens }) => sum + newTokens, 0)

/** What a trajectory needs at its end, and this engine has not; null where it fits. */
export function roomFault(one: TracedTrajectory, model: EngineModel): string | null {
  const room = capacityBlocks(model) * model.blockTokens
  // The token that is sampled last is never put into the cache; but a turn begins only where one fits behind its context.
  const needs = finalTokens(one) - (one.turns.at(-1)!.newTokens > 1 ? 1 : 0)
  if (needs <= room) return null
  return `trajectory '${one.trajectoryId}' needs ${needs} tokens of KV, and engine ${model.name} has ${room} in whole blocks (kvTokens ${model.kvTokens}, blockTokens ${model.blockTokens})`
}

/** What is wrong with a trace for this engine, in the words of its reader; null where nothing is. */
export function traceFault(trace: readonly TracedTrajectory[], model: EngineModel): string | null {
  if (trace.length === 0) return 'it holds no trajectory'
  const seen = new Set<string>()
  const firstMs = firstArrivalMs(trace)
  for (const one of trace) {
    const waitsMs = one.turns.reduce((sum, { toolMs }) => sum + toolMs, one.arrivalMs - firstMs)
    if (!(waitsMs <= longestWaitMs)) {
      return `trajectory '${one.trajectoryId}' waits ${waitsMs} ms for its arrival and its tools, from the first arrival on: are the times in ms since the trace's start?`
    }
    if (seen.has(one.trajectoryId)) return `trajectoryId '${one.trajectoryId}' is there twice`
    seen.add(one.trajectoryId)
    const fault = roomFault(one, model)
    if (fault !== null) return fault
  }
  return null
}
