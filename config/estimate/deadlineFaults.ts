/**
 * Finds the deadlines and timeouts of a recipe that are shorter than the estimated durations.
 *
 * in   a resolved recipe, its estimated durations        out  a sentence for each fault, with the sum that shows it
 * Invariant: the start of a run refuses only a recipe with a `hardware` section. Without one the estimate assumes
 * default hardware, which says nothing about the machine of the run.
 */
import { TroupeError } from '../../runtime/errors'
import type { RecipeConfig } from '../schema'
import type { Durations } from './durations'
import type { Figure } from './figure'
import { durationsIfKnown, timeoutNames } from './timeouts'

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

/**
 * Refuses to begin a run whose deadlines or timeouts are shorter than the estimate. Accepts a recipe without a
 * `hardware` section.
 * @throws TroupeError config.deadline_too_short
 */
export function refuseShortDeadlines(config: RecipeConfig): void {
  const durations = config.hardware === undefined ? undefined : durationsIfKnown(config)
  const faults = durations === undefined ? [] : deadlineFaults(config, durations)
  if (faults.length === 0) return
  throw new TroupeError('config.deadline_too_short', {
    boundary: 'config',
    retriable: false,
    message: `recipe ${config.name}: ${faults.join('\n  ')}`,
    hint: '`troupe train RECIPE --dry-run --estimate-only` prints all durations',
  })
}

const fault = (path: string, ms: number, { what, value, formula }: Figure, advice: string): string[] =>
  value * 1000 <= ms
    ? []
    : [
        `${path} is ${ms < 10_000 ? `${ms} ms` : `${(ms / 1000).toFixed(0)} s`}, but the ${what} takes ${value.toFixed(0)} s by the estimate (${formula}): ${advice}`,
      ]
