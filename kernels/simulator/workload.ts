/**
 * Draws loads like those of agentic rollouts: groups that share a prompt, and turns with tools between them.
 *
 * in   a shape and a seed        out  a trace
 * A trajectory's number of sampled tokens is lognormal around its group's mean, which is lognormal around the load's
 * mean. The number is divided unequally among the turns. A trajectory is cut at the cap, as a recipe's limit would cut
 * it.
 * Invariant: shape and seed determine the trace, and a trajectory's draws do not depend on how many others there are.
 */
import { pcg32, type Random } from '../random'
import type { TracedTrajectory, TracedTurn } from './trace'

export interface WorkloadShape {
  readonly groups: number
  readonly groupSize: number
  /** Bounds of a group's number of prompt tokens, which is drawn uniformly. */
  readonly promptTokens: readonly [number, number]
  /** Mean number of sampled tokens of a trajectory before the cap. */
  readonly meanTokens: number
  /** Sigma of the logarithm of a trajectory's number of sampled tokens. */
  readonly spread: number
  /** Share of the variance of the logarithm of sampled tokens that comes from the group, not from its member. */
  readonly groupShare: number
  /** Upper bound on a trajectory's tokens: prompt, sampled and tool tokens together. */
  readonly capTokens: number
  readonly turns: readonly [number, number]
  /** Mean tool latency (lognormal), ms. */
  readonly toolMs: number
  /** Sigma of the logarithm of the tool latency. */
  readonly toolSpread: number
  readonly toolTokens: readonly [number, number]
  /** Milliseconds from the first group's arrival to the last group's; groups arrive in order, at equal intervals. */
  readonly arrivalMs: number
}

/**
 * Base shape of a load: groups of 32; 4K sampled tokens on average before the cap of 8K tokens in total; 1–10 turns;
 * tools of 0.3 s on average, with a few slow ones.
 */
export const baseShape: WorkloadShape = {
  groups: 512,
  groupSize: 32,
  promptTokens: [100, 400],
  meanTokens: 4000,
  spread: 0.7,
  groupShare: 0.5,
  capTokens: 8192,
  turns: [1, 10],
  toolMs: 300,
  toolSpread: 0.8,
  toolTokens: [20, 120],
  arrivalMs: 0,
}

/** Draws a number from the standard normal distribution (Box and Muller, 1958). */
function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform())
}

const between = (random: Random, [low, high]: readonly [number, number]): number => low + random.below(high - low + 1)

/** Transforms a standard normal number `z` into a lognormal one with this mean and spread. */
const lognormal = (mean: number, spread: number, z: number): number =>
  mean * Math.exp(spread * z - (spread * spread) / 2)

/** Draws a trace. @param seed an integer in [0, 2^32) */
export function workload(shape: WorkloadShape, seed: number): readonly TracedTrajectory[] {
  const trace: TracedTrajectory[] = []
  for (let group = 0; group < shape.groups; group++) {
    const ofGroup = pcg32(seed, 2 * group)
    const groupZ = normal(ofGroup)
    const promptTokens = between(ofGroup, shape.promptTokens)
    const arrivalMs = shape.groups > 1 ? (shape.arrivalMs * group) / (shape.groups - 1) : 0
    for (let member = 0; member < shape.groupSize; member++) {
      const random = pcg32((seed ^ Math.imul(member + 1, 0x9e3779b1)) >>> 0, 2 * group + 1)
      const z = Math.sqrt(shape.groupShare) * groupZ + Math.sqrt(1 - shape.groupShare) * normal(random)
      const tokens = lognormal(shape.meanTokens, shape.spread, z)
      trace.push({
        trajectoryId: `g${group}/${member}`,
        groupId: `g${group}`,
        arrivalMs,
        promptTokens,
        turns: turnsOf(shape, random, promptTokens, tokens),
      })
    }
  }
  return trace
}

function turnsOf(shape: WorkloadShape, random: Random, promptTokens: number, tokens: number): readonly TracedTurn[] {
  const weights = Array.from({ length: between(random, shape.turns) }, () => 0.2 + random.uniform())
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  const turns: TracedTurn[] = []
  let context = promptTokens
  for (const weight of weights) {
    const left = shape.capTokens - context
    const newTokens = Math.min(left, Math.max(1, Math.round((tokens * weight) / total)))
    const toolMs = Math.round(lognormal(shape.toolMs, shape.toolSpread, normal(random)))
    const toolTokens = between(random, shape.toolTokens)
    turns.push({ newTokens, toolMs, toolTokens })
    context += newTokens + toolTokens
    if (context >= shape.capTokens) break
  }
  return [...turns.slice(0, -1), { ...turns[turns.length - 1]!, toolMs: 0, toolTokens: 0 }]
}
