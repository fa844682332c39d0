/**
 * Resolves each timeout: the recipe's value, else `margin` times the estimated duration, but at least a floor and at
 * most the longest time that a timer of Node can wait.
 *
 * in   a resolved recipe; its model's transformers config, read from the model's directory where the recipe has none
 * out  a timeout for each name, with its source in words
 * Invariant: a timeout that the recipe leaves out is its floor if `margin` times the estimate is not above the floor,
 * or if the model's config cannot be read.
 */
import type { RecipeConfig } from '../schema'
import { hardwareSection } from '../sections/hardware'
import { longestTimerMs, type TimeoutName, type Timeouts, timeoutsSection } from '../sections/timeouts'
import { architectureIfKnown } from './architecture'
import type { Durations } from './durations'
import { partsOf } from './parts'

/**
 * Factor on the estimate, 2 × 2. First 2: the estimate assumes that rollouts use half of their token budget, and they
 * may use all of it. Second 2: the hardware may reach only half of the utilization or bandwidth that the recipe
 * assumes.
 */
const margin = 4

/** Lower bounds on the timeouts, ms: enough for a model of up to about a billion parameters with slow storage. */
const floors: Timeouts = {
  trainerStartMs: 180_000,
  stepMs: 3_600_000,
  sftMs: 6 * 3_600_000,
  saveMs: 600_000,
  loadMs: 600_000,
  rankWaitMs: 600_000,
  engineStartMs: 180_000,
  weightUpdateMs: 600_000,
  weightsBehindMs: 60_000,
  fetchWeightsMs: 3_600_000,
  firstTokenMs: 600_000,
}

/**
 * Lower bound on `trainerStartMs` for a trainer on several hosts: people start the ranks of one host after the other.
 */
const hostsStartMs = 1_800_000

export const timeoutNames = Object.keys(timeoutsSection.shape) as readonly TimeoutName[]

export interface ExplainedTimeout {
  readonly ms: number
  /** Source of the value, in words; undefined if the recipe names the value. */
  readonly origin: string | undefined
}

/** Resolves the timeouts with their origins. `durations`: the estimate, if there is one. */
export function explainTimeouts(
  { timeouts = {}, train }: Pick<RecipeConfig, 'timeouts' | 'train'>,
  durations: Durations | undefined,
): Readonly<Record<TimeoutName, ExplainedTimeout>> {
  const one = (name: TimeoutName): ExplainedTimeout => {
    const named = timeouts[name]
    if (named !== undefined) return { ms: named, origin: undefined }
    const floor = name === 'trainerStartMs' && train.nodes > 1 ? hostsStartMs : floors[name]
    if (durations === undefined) return { ms: floor, origin: 'floor: no estimate without the model’s config' }
    const { what, value } = durations.timeouts[name]
    const ms = Math.min(longestTimerMs, margin * Math.ceil(value) * 1000)
    const said = `${margin} × estimate (${what}: ${value.toFixed(0)} s)`
    return ms > floor ? { ms, origin: said } : { ms: floor, origin: `floor, above ${said}` }
  }
  return Object.fromEntries(timeoutNames.map(name => [name, one(name)])) as Record<TimeoutName, ExplainedTimeout>
}

/** Estimates the recipe's durations; undefined if its model's transformers config cannot be read. */
export function durationsIfKnown(config: RecipeConfig): Durations | undefined {
  const architecture = architectureIfKnown(config)
  if (architecture === undefined) return undefined
  return partsOf(config, architecture, config.hardware ?? hardwareSection.parse({})).durations
}

export function timeoutsOf(config: RecipeConfig): Timeouts {
  const explained = explainTimeouts(config, durationsIfKnown(config))
  return Object.fromEntries(timeoutNames.map(name => [name, explained[name].ms])) as Record<TimeoutName, number>
}
