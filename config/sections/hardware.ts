/**
 * The hardware that a recipe is meant for, and the plan of its GPUs. The sizes and speeds are for the estimates
 * (config/estimate). `plan` and `tensorParallel` also decide which GPUs the engines and the trainer of a run get
 * (devicePlan.ts), and `engineMemoryShare` is given to the servers that the run starts.
 */
import { z } from 'zod'
import { count, positive } from './numbers'

/** Indices of GPUs on one host, counted from 0 among those that the process sees. */
const gpuIndices = z.array(count).min(1).max(1024)

/**
 * Plan of the GPUs. split: some GPUs generate and others train. `engines`, `trainer`: their GPUs; default: the engines'
 * GPUs come first, the trainer's follow. colocated: engines and trainer use the same GPUs in turn. Engines sleep while
 * the trainer computes: at sleep level 1 their weights move to the host's memory, at level 2 the weights are discarded
 * and loaded again; the KV cache is discarded at both. `offloadTrainer`: the trainer's weights and optimizer move to
 * the host's memory while the engines generate; false keeps them on the GPUs.
 */
const planSection = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('split'), engines: gpuIndices.optional(), trainer: gpuIndices.optional() }),
  z.strictObject({
    kind: z.literal('colocated'),
    sleepLevel: z.union([z.literal(1), z.literal(2)]).default(1),
    offloadTrainer: z.boolean().default(true),
  }),
])

export const hardwareSection = z.strictObject({
  name: z.string().default('H100 80 GB'),
  /** null or absent: `split` if the host has enough GPUs for it, else engines and trainer use the same GPUs at once. */
  plan: z.preprocess(plan => plan ?? undefined, planSection.optional()).optional(),
  /** Number of GPUs on all hosts together. */
  gpus: positive.default(8),
  /** Number of GPUs on one host. */
  gpusPerHost: positive.default(8),
  memoryGib: z.number().positive().default(80),
  /** Memory of one host, GiB. Absent: the estimate does not check the memory of hosts. */
  hostMemoryGib: z.number().positive().optional(),
  /** Dense bf16 TFLOP/s of one GPU, by its data sheet. */
  tflops: z.number().positive().default(989),
  /** Memory bandwidth of one GPU, GB/s, by its data sheet. */
  bandwidthGBps: z.number().positive().default(3350),
  /**
   * Bandwidth at which a GPU sends to the GPUs of other ranks, GB/s. Default: 450 (NVLink) where all GPUs are on one
   * host, else 50 (a network card of 400 Gb/s for each GPU).
   */
  interconnectGBps: z.number().positive().optional(),
  /**
   * Bandwidth at which one process reads and writes weights and checkpoints, GB/s. The default is that of a network
   * disk.
   */
  storageGBps: z.number().positive().default(0.5),
  /** Number of GPUs that together hold one copy of the weights for generation. */
  tensorParallel: positive.default(1),
  /** Share of a GPU's memory that an engine may use. */
  engineMemoryShare: z.number().positive().max(1).default(0.8),
  /** Assumed share of the peak FLOP/s that training reaches, and that engines reach where arithmetic bounds them. */
  trainUtilization: z.number().positive().max(1).default(0.35),
  /** Assumed share of the memory bandwidth that generation reaches. */
  generationUtilization: z.number().positive().max(1).default(0.5),
})

export type HardwareConfig = z.output<typeof hardwareSection>
