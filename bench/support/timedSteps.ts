/**
 * Compares estimated times of training steps with measured ones: one measured step calibrates the rates of the time
 * model, which then predicts other steps.
 *
 * in   a configuration (measuredStep.ts)
 * out  for each predicted batch its measured seconds, and the predicted time divided by the measured one
 * Invariants: the calibration step has three micro-batches, one for each rate: a long sequence, the same tokens in
 * short sequences, and one short sequence. No predicted batch is among them. Seconds are processor time of rank 0, the
 * least of several rounds; rates hold for one configuration (model, dtype, LoRA, checkpointing, ranks).
 */

import { loraParameters, parametersOf, shapeOf } from '../../config/estimate/modelShape'
import { microBatchWork, type TrainedHow, updateBytes } from '../../config/estimate/trainingWork'
import { calibrated, type Rates, type StepWork, stepSeconds } from './calibration'
import { measuredTimes, models, promptTokens, type StepConfiguration } from './measuredStep'

export interface PredictedStep {
  readonly name: string
  readonly seconds: number
  /** Predicted seconds divided by measured seconds. */
  readonly ratio: number
}

export interface TimedSteps {
  readonly rates: Rates
  readonly predicted: readonly PredictedStep[]
  /** Work and measured seconds of the predicted batches; `carriedRatio` compares them with other rates. */
  readonly works: readonly { readonly name: string; readonly work: StepWork; readonly seconds: number }[]
}

/** A batch: the micro-batches into which a rank's share of it is cut, as lengths of their sequences, longest first. */
interface Batch {
  readonly name: string
  readonly microBatchTokens: number
  readonly micros: readonly (readonly number[])[]
}

/** Batches for micro-batches of t tokens: the first one calibrates. */
function batchesOf(t: number): readonly Batch[] {
  const quarter = t / 4
  return [
    { name: 'calibration', microBatchTokens: t, micros: [[t], [quarter, quarter, quarter, quarter], [quarter]] },
    { name: 'short sequences', microBatchTokens: t, micros: [new Array<number>(8).fill(t / 8), new Array<number>(8).fill(t / 8)] },
    { name: 'one of twice the length', microBatchTokens: t, micros: [[2 * t]] },
    { name: 'mixed lengths', microBatchTokens: t, micros: [[0.7 * t, 0.3 * t], [0.25 * t, 0.2 * t, 0.15 * t, 0.15 * t, 0.1 * t]].map(all => all.map(Math.floor)) },
    { name: 'small micro-batches', microBatchTokens: t / 2, micros: [[t / 2], [t / 2], [t / 2]] },
  ] // biome-ignore format: a table
}

export async function timedSteps(
  configuration: StepConfiguration,
  tokens: number,
  rounds: number,
): Promise<TimedSteps> {
  const { size, dtype = 'float32', checkpointing = false, loraRank, ranks = 1 } = configuration
  const batches = batchesOf(tokens)
  const asked = batches.map(({ micros, microBatchTokens }) => ({
    microBatchTokens,
    lengths: micros.flat().flatMap(length => new Array<number>(ranks).fill(length)),
  }))
  const timed = await measuredTimes(configuration, asked, rounds)
  const shape = shapeOf(models[size])
  const how: TrainedHow = { shape, device: 'cpu', half: dtype === 'bfloat16', checkpointing, loraRank, ranks }
  const trainable = loraRank === undefined ? parametersOf(shape) : loraParameters(shape, loraRank)
  const works = batches.map(({ micros }, at): StepWork => {
    if (timed[at]!.micros.length !== micros.length)
      throw new Error(
        `${batches[at]!.name}: expected ${micros.length} micro-batches, found ${timed[at]!.micros.length}`,
      )
    return {
      micros: micros.map(lengths =>
        microBatchWork(how, { lengths, trained: lengths.reduce((sum, n) => sum + n - promptTokens, 0) }),
      ),
      updateBytes: updateBytes(trainable, ranks),
    }
  })
  const rates = calibrated(works[0]!, timed[0]!)
  const rest = batches.slice(1).map(({ name }, at) => ({ name, work: works[at + 1]!, seconds: timed[at + 1]!.step }))
  const predicted = rest.map(({ name, work, seconds }) => ({
    name,
    seconds,
    ratio: stepSeconds(work, rates) / seconds,
  }))
  return { rates, predicted, works: rest }
}

/** Predicts all batches with the `rates` of another configuration; returns the predicted sum over the measured sum. */
export function carriedRatio({ works }: TimedSteps, rates: Rates): number {
  const seconds = works.reduce((sum, one) => sum + one.seconds, 0)
  return works.reduce((sum, { work }) => sum + stepSeconds(work, rates), 0) / seconds
}
