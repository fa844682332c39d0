/**
 * Resolves `train.innerCheckpointEvery`, the updates between two checkpoints in the middle of a step: the recipe's value,
 * else one from the estimate.
 *
 * in   a resolved recipe, the estimated durations        out  a number of updates (0: none), with where it comes from
 * Invariant: without a value in the recipe, a step of one update has no such checkpoint, and neither has a step whose
 * estimate is unknown or at most `boundSeconds`.
 */
import type { RecipeConfig } from '../schema'
import type { Durations } from './durations'
import { durationsIfKnown } from './timeouts'

/** Seconds of training that a crash may cost; a step that takes longer gets checkpoints in its middle. */
export const boundSeconds = 1800

export interface ExplainedInner {
  readonly every: number
  /** Where the value comes from; undefined if the recipe names it. */
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
