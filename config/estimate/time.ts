/**
 * Estimates the time of a step and of the run.
 *
 * in   the sizes of a recipe, its tokens, its gradient reduction        out  figures; seconds
 * Assumptions: GPUs reach the utilizations in the recipe's hardware, and all rollouts have the mean length. Left out:
 * prompts, and imbalance between GPUs.
 */
import type { GradientReduction } from './activations'
import { plannedEngine } from './engineModel'
import { type Figure, figure } from './figure'
import { generationOf } from './generation'
import type { Sizes } from './sizes'
import type { Tokens } from './tokens'
import { trainingTime } from './trainingTime'

export interface Times {
  readonly figures: readonly Figure[]
  /** Seconds to generate the rollouts of a step. */
  readonly generation: Figure
  /** Seconds to train one step: all its optimizer updates, without generation. */
  readonly training: Figure
  /** Seconds between two tokens of a sequence on an engine whose sequences all have the mean length of a rollout. */
  readonly secondsPerToken: number
}

export function timesOf(sizes: Sizes, tokens: Tokens, reduction: GradientReduction): Times {
  const { train } = sizes.config
  const { figure: generated, secondsPerToken } = generationOf(plannedEngine(sizes), sizes.engines, tokens)
  const { total: trained, parts } = trainingTime(sizes, tokens, reduction)
  const step = generated.value + trained.value
  const figures = [
    generated,
    trained,
    ...parts,
    figure('step', step, 's', 'generation + training; tools run beside generation'),
    figure('run', (step * train.steps) / 3600, 'h', `× ${train.steps} steps, without evaluations and the cold start`),
  ]
  return { figures, generation: generated, training: trained, secondsPerToken }
}
