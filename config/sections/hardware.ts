/** The hardware that a recipe is meant for. Only the estimates of a dry run use it. */
import { z } from 'zod'
import { positive } from './numbers'

export const hardwareSection = z.strictObject({
  name: z.string().default('H100 80 GB'),
  gpus: positive.default(8),
  memoryGib: z.number().positive().default(80),
  /** Dense bf16 TFLOP/s of one GPU, by its data sheet. */
  tflops: z.number().positive().default(989),
  /** Memory bandwidth of one GPU, GB/s, by its data sheet. */
  bandwidthGBps: z.number().positive().default(3350),
  /** Number of GPUs that together hold one copy of the weights for generation. */
  tensorParallel: positive.default(1),
  /** Share of a GPU's memory that an engine may use. */
  engineMemoryShare: z.number().positive().max(1).default(0.8),
  /**
   * `trainUtilization`: assumed share of the peak FLOP/s that training reaches. `generationUtilization`: assumed share
   * of the memory bandwidth that generation reaches.
   */
  trainUtilization: z.number().positive().max(1).default(0.35),
  generationUtilization: z.number().positive().max(1).default(0.5),
})

export type HardwareConfig = z.output<typeof hardwareSection>
