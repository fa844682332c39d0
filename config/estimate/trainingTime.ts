/**
 * Estimates the time of one step's training: matrix products of the layers, the head and attention; AdamW's memory
 * traffic; the data that ranks send.
 *
 * in   the sizes of a recipe, its tokens        out  seconds, in all and by part
 * Assumptions: products run at `hardware.trainUtilization` of the peak FLOP/s, an update runs at the whole memory
 * bandwidth, and ranks send at `hardware.interconnectGBps`; nothing overlaps. One measured step gives the real
 * `trainUtilization` (docs/training-measured.md).
 */
import { correctionOf } from '../sections/correction'
import type { HardwareConfig } from '../sections/hardware'
import type { GradientReduction } from './activations'
import { type Figure, figure } from './figure'
import { precisionOf } from './precision'
import type { Sizes } from './sizes'
import type { Tokens } from './tokens'
import { forwardFlops, gatheredBytes, reducedBytes, type TrainedHow, updateBytes, updatePasses } from './trainingWork'

/** Assumed GB/s that a GPU sends to others: over NVLink on one host, over a network card of 400 Gb/s between hosts. */
const assumedInterconnect = { host: 450, hosts: 50 }

export const interconnectOf = ({ interconnectGBps, gpus, gpusPerHost }: HardwareConfig): number =>
  interconnectGBps ?? (gpus <= gpusPerHost ? assumedInterconnect.host : assumedInterconnect.hosts)

export function trainingTime(
  sizes: Sizes,
  { trained, meanTokens }: Tokens,
  gradientReduction: GradientReduction,
): { readonly total: Figure; readonly parts: readonly Figure[] } {
  const { config, hardware, shape, trainable, ranks } = sizes
  const { train } = config
  const device = train.device === 'cpu' ? 'cpu' : 'cuda'
  const how: TrainedHow = {
    ...{ shape, device, ranks, half: precisionOf(train.dtype, train.device) === 'bfloat16' },
    ...{ checkpointing: train.checkpointing, loraRank: train.lora?.rank },
  }
  const { miniBatches, innerSteps } = train
  const one = forwardFlops(how, { lengths: [meanTokens], trained: meanTokens })
  const passes = updatePasses(how)
  const scoresOld = miniBatches > 1 && correctionOf(train)?.kind !== 'engine-logprobs'
  const scored = (train.klCoef > 0 ? 1 : 0) + (scoresOld ? 1 - 1 / miniBatches : 0)
  const times = (pass: number) => pass * innerSteps + scored
  const sequences = trained / Math.max(1, meanTokens)
  const flops = {
    matrices: sequences * one.matrices * times(passes.matrices),
    head: sequences * one.head * times(passes.head),
    attention: sequences * one.attention * times(passes.attention),
  }
  const speed = ranks * hardware.tflops * 1e12 * hardware.trainUtilization
  const rated = `${ranks} × ${hardware.tflops} TFLOPS × ${hardware.trainUtilization}`
  const updates = innerSteps * miniBatches
  const micros = Math.max(1, Math.ceil(trained / ranks / train.microBatchTokens / miniBatches)) * updates
  const reductions = gradientReduction === 'update' ? updates : micros
  const sent = micros * gatheredBytes(how) + reductions * reducedBytes(how)
  const link = interconnectOf(hardware)
  const computed = (flops.matrices + flops.head + flops.attention) / speed
  const updated = (updates * updateBytes(trainable, ranks)) / (hardware.bandwidthGBps * 1e9)
  const linked = sent / (link * 1e9)
  const share = (part: number) => `${((100 * part) / (computed * speed)).toFixed(0)} %`
  const compute = figure(
    'training: products',
    computed,
    's a step',
    `${(computed * speed).toExponential(2)} FLOPs (layers ${share(flops.matrices)}, head ${share(flops.head)}, attention's square ${share(flops.attention)}) / (${rated})`,
  )
  const update = figure(
    'training: updates',
    updated,
    's a step',
    `${updates} × ${(updateBytes(trainable, ranks) / 1e9).toFixed(2)} GB a rank / ${hardware.bandwidthGBps} GB/s`,
  )
  const network = figure(
    'training: between ranks',
    linked,
    's a step',
    ranks === 1
      ? 'one rank has all parameters'
      : `${micros} micro-batches gather ${(gatheredBytes(how) / 1e9).toFixed(1)} GB, ${reductions} reductions send ${(reducedBytes(how) / 1e9).toFixed(1)} GB; / ${link} GB/s`,
  )
  const total = figure(
    'training',
    computed + updated + linked,
    's a step',
    `products ${computed.toFixed(1)} (${rated}) + updates ${updated.toFixed(1)} + between ranks ${linked.toFixed(1)}`,
  )
  return { total, parts: [compute, update, network] }
}
