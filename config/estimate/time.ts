/**
 * Time of a step and of the run.
 *
 * in   the sizes of a recipe, its tokens, tokens of an engine's KV cache        out  figures; seconds
 * Assumptions: the utilizations in the recipe's hardware. Communication and imbalance between GPUs are left out.
 */
import { correctionOf } from '../sections/correction'
import { count, type Figure, figure } from './figure'
import { kvBytesOf } from './modelShape'
import type { Sizes } from './sizes'
import type { Tokens } from './tokens'

export interface Times {
  readonly figures: readonly Figure[]
  /** Seconds to generate the rollouts of a step. */
  readonly generation: Figure
  /** Seconds of an optimizer step. */
  readonly training: Figure
  /** Seconds between two tokens of a sequence on a full engine. */
  readonly secondsPerToken: number
}

export function timesOf(sizes: Sizes, tokens: Tokens, kvTokens: number): Times {
  const { train } = sizes.config
  const { figure: generated, secondsPerToken } = generationTime(sizes, tokens, kvTokens)
  const trained = trainingTime(sizes, tokens)
  const step = generated.value + trained.value
  const figures = [
    generated,
    trained,
    figure('step', step, 's', 'generation + training; tools run beside generation'),
    figure('run', (step * train.steps) / 3600, 'h', `× ${train.steps} steps, without evaluations and the cold start`),
  ]
  return { figures, generation: generated, training: trained, secondsPerToken }
}

/**
 * Generation is bound by memory bandwidth: an engine reads its weights and the KV cache of all running sequences once to sample
 * one token for each of them.
 */
function generationTime({ hardware, shape, parameters, engines }: Sizes, tokens: Tokens, kvTokens: number) {
  const { tensorParallel: tp, bandwidthGBps, generationUtilization } = hardware
  const { rollouts, meanTokens, sampled } = tokens
  const running = Math.max(1, Math.min(Math.ceil(rollouts / engines), Math.floor(kvTokens / Math.max(1, meanTokens))))
  const bytesAStep = (2 * parameters) / tp + (running * meanTokens * kvBytesOf(shape)) / tp
  const secondsPerToken = bytesAStep / (generationUtilization * bandwidthGBps * 1e9)
  const tokensASecond = (engines * running) / secondsPerToken
  const generated = figure(
    'generation',
    sampled / tokensASecond,
    's a step',
    `${count(tokensASecond)} tokens/s: ${engines} engines × ${running} sequences × ${generationUtilization} × ${bandwidthGBps} GB/s / (weights + KV read a token)`,
  )
  return { figure: generated, secondsPerToken }
}

/**
 * Training is bound by compute. FLOPs per parameter and token: 6 for forward and backward, 2 for recomputing
 * activations. Once a step, scoring the reference adds 2, and scoring π_old adds 2 for all mini-batches but the first.
 */
function trainingTime({ config: { train }, hardware, parameters, ranks }: Sizes, { trained }: Tokens): Figure {
  const measuresKl = train.klCoef > 0
  const pass = train.checkpointing ? 8 : 6
  const { miniBatches } = train
  const scoresOld = miniBatches > 1 && correctionOf(train)?.kind !== 'engine-logprobs'
  const old = scoresOld ? 2 * (1 - 1 / miniBatches) : 0
  const flops = (pass * train.innerSteps + (measuresKl ? 2 : 0) + old) * parameters * trained
  const scoring = [
    ...(measuresKl ? [' + 2 for the reference'] : []),
    ...(scoresOld ? [` + ${old.toFixed(2)} for π_old`] : []),
  ].join('')
  const passes = `${pass} × ${train.innerSteps}${scoring}`
  return figure(
    'training',
    flops / (ranks * hardware.tflops * 1e12 * hardware.trainUtilization),
    's a step',
    `${scoring === '' ? passes : `(${passes})`} × parameters × trained tokens / (${ranks} × ${hardware.tflops} TFLOPS × ${hardware.trainUtilization})`,
  )
}
