/**
 * Finds the deadlines and timeouts of a recipe that are shorter than the estimated durations.
 *
 * in   a resolved recipe, its estimated durations        out  a sentence for each fault, with the sum that shows it
 */
import type { RecipeConfig } from '../schema'
import type { Durations } from './durations'
import type { Figure } from './figure'
import { timeoutNames } from './timeouts'

export function deadlineFaults({ rollout, timeouts = {}, train }: RecipeConfig, durations: Durations): string[] {
  const { rollout: longest, turn } = durations
  const named = timeoutNames.flatMap(name => {
    const ms = timeouts[name]
    return ms === undefined ? [] : fault(`timeouts.${name}`, ms, durations.timeouts[name], 'raise it, or leave it out')
  })
  // A run without steps only evaluates, and evaluations have no deadline.
  const sampled =
    train.steps === 0
      ? []
      : fault('rollout.deadlineMs', rollout.deadlineMs, longest, 'raise it, or lower limits.responseTokens')
  return [...sampled, ...fault('rollout.turnTimeoutMs', rollout.turnTimeoutMs, turn, 'raise it'), ...named]
}

const fault = (path: string, ms: number, { what, value, formula }: Figure, advice: string): string[] =>
  value * 1000 <= ms
    ? []
    : [
        `${path} is ${ms < 10_000 ? `${ms} ms` : `${(ms / 1000).toFixed(0)} s`}, but the ${what} takes ${value.toFixed(0)} s by the estimate (${formula}): ${advice}`,
      ]
