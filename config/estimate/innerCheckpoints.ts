/**
 * Resolves `train.innerCheckpointEvery`, the number of updates between two checkpoints within one step: the recipe's
 * value, else one from the estimate.
 *
 * in   a resolved recipe, the estimated durations        out  a number of updates (0: none), with where it comes from
 * Invariant: if the recipe names no value, the number is 0 for a step of one update, and for a step whose estimated
 * duration is unknown or at most `boundSeconds`.
 */
import type { RecipeConfig } from '../schema'
import type { Durations } from './durations'
import { durationsIfKnown } from './timeouts'

/**
 * Seconds of training that a crash may cost. A step whose estimate is longer gets a checkpoint about every
 * `boundSeconds`.
 */
export const boundSeconds = 1800

export interface ExplainedInner {
  readonly every: number
  /** Source of the value, in words; undefined if the recipe names the value. */
  readonly origin: string | undefined
}

export function explainInnerCheckpoints(
  { train }: Pick<RecipeConfig, 'train'>,
  durations: Pick<Durations, 'timeouts'> | undefined,
): ExplainedInner {
  const { innerCheckpointEvery: named, innerSteps, miniBatches } = train
  if (named !== undefined) return { every: named, origin: undefined }
  const updates = innerSteps * miniBatches
  if (updates === 1) return { every: 0, origin: 'none: a step makes one update' }
  if (durations === undefined) return { every: 0, origin: 'none: no estimate without the model’s config' }
  const seconds = durations.timeouts.stepMs.value
  const said = `estimate of a step: ${seconds.toFixed(0)} s`
  if (seconds <= boundSeconds) return { every: 0, origin: `none: ${said}, at most ${boundSeconds} s` }
  const every = Math.max(1, Math.round((updates * boundSeconds) / seconds))
  // no checkpoint is needed after the last update: the step is over
  return { every: Math.min(every, updates - 1), origin: `about every ${boundSeconds} s (${said})` }
}

export const innerCheckpointEveryOf = (config: RecipeConfig): number =>
  explainInnerCheckpoints(config, durationsIfKnown(config)).every
