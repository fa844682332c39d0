/**
 * Estimates the durations that the recipe's deadlines and timeouts bound.
 *
 * in   the sizes of a recipe, its tokens and times        out  seconds, each with its formula
 * Assumptions: storage is read and written at `hardware.storageGBps` by one process at a time; engines are full, so a
 * sequence grows at the speed of a full batch; a conversation of the cold start has `sftTokens` tokens, or fills the
 * context if that is shorter.
 */
import type { TimeoutName } from '../sections/timeouts'
import { checkpointSize } from './disk'
import { billions, count, type Figure, figure } from './figure'
import type { Sizes } from './sizes'
import type { Times } from './time'

/**
 * Assumed mean tokens of a cold-start conversation; a shorter context lowers it. The paper's conversations have 604.
 */
const sftTokens = 1024

export interface Durations {
  /** The longest rollout, from its first token to its end. */
  readonly rollout: Figure
  /** The longest turn: one turn that uses the whole response budget, the larger one of training and evaluation. */
  readonly turn: Figure
  readonly timeouts: Readonly<Record<TimeoutName, Figure>>
}

export function durationsOf(sizes: Sizes, times: Times): Durations {
  const { config, hardware, parameters, trainable } = sizes
  const { storageGBps } = hardware
  const { limits, evaluation, stages } = config
  const perToken = times.secondsPerToken
  const longest = Math.max(limits.responseTokens, ...stages.map(stage => stage.limits?.responseTokens ?? 0))
  const turns = Math.max(limits.turns, ...stages.map(stage => stage.limits?.turns ?? 0))
  const turnTokens = Math.max(longest, evaluation.limits?.responseTokens ?? 0)
  const toolSeconds = (turns * limits.callsPerTurn * limits.toolTimeoutMs) / 1000
  const said = `${perToken.toFixed(4)} s a token of a full engine`
  const stored = (what: string, bytes: number, formula: string) =>
    figure(what, bytes / (storageGBps * 1e9), 's', `${formula} / ${storageGBps} GB/s`)
  const { bytes, weightBytes, formula } = checkpointSize({ parameters, trainable }, config.train)
  const weights = (what: string) =>
    stored(what, weightBytes * parameters, `${weightBytes} bytes × ${billions(parameters)}`)
  const checkpoint = (what: string) => stored(what, bytes, formula)
  return {
    rollout: figure(
      'longest rollout',
      longest * perToken + toolSeconds,
      's',
      `${count(longest)} tokens × ${said} + ${turns} turns × ${limits.callsPerTurn} × ${limits.toolTimeoutMs} ms of tools`,
    ),
    turn: figure('longest turn', turnTokens * perToken, 's', `${count(turnTokens)} tokens × ${said}`),
    timeouts: {
      trainerStartMs: weights('start of the trainer'),
      stepMs: figure('optimizer step', times.training.value, 's', times.training.formula),
      sftMs: coldStart(sizes),
      saveMs: checkpoint('saving of a checkpoint'),
      loadMs: checkpoint('loading of a checkpoint'),
      rankWaitMs: checkpoint('wait for the rank that saves'),
      engineStartMs: weights('start of an engine'),
      weightUpdateMs: weights('load of new weights'),
      weightsBehindMs: weights('load of new weights'),
      fetchWeightsMs: weights('fetch of weights'),
      firstTokenMs: figure(
        'wait for the first token',
        longest * perToken,
        's',
        `${count(longest)} tokens × ${said}: a full server takes a turn when another one ends`,
      ),
    },
  }
}

function coldStart({ config, hardware, parameters, ranks }: Sizes): Figure {
  const { coldStart: sft, train, limits } = config
  if (sft === undefined) return figure('cold start', 0, 's', 'the recipe has none')
  const tokens = Math.min(sftTokens, limits.contextTokens)
  const pass = train.checkpointing ? 8 : 6
  const flops = pass * parameters * sft.demonstrations * sft.epochs * tokens
  return figure(
    'cold start',
    flops / (ranks * hardware.tflops * 1e12 * hardware.trainUtilization),
    's',
    `${pass} × parameters × ${count(sft.demonstrations)} conversations × ${sft.epochs} epochs × ${count(tokens)} tokens / (${ranks} × ${hardware.tflops} TFLOPS × ${hardware.trainUtilization})`,
  )
}
