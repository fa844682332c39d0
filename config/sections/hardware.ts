/** What a recipe is meant to run on: for the estimates of a dry run, and nothing else. */
import { z } from 'zod'
import { positive } from './numbers'

export const hardwareSection = z.strictObject({
  name: z.string().default('H100 80 GB'),
  gpus: positive.default(8),
  memoryGib: z.number().positive().default(80),
  /** Dense bf16, of one, by its data sheet. */
  tflops: z.number().positive().default(989),
  /** Memory bandwidth of one, GB/s, by its data sheet. */
  bandwidthGBps: z.number().positive().default(3350),
  /** GPUs that hold one copy of the weights for generation. */
  tensorParallel: positive.default(1),
  /** Share of an engine's memory that it may use. */
  engineMemoryShare: z.number().positive().max(1).default(0.8),
  /** Share of the peak that training, and of the bandwidth that generation, is assumed to reach. */
  trainUtilization: z.number().positive().max(1).default(0.35),
  generationUtilization: z.number().positive().max(1).default(0.5),
})

export type HardwareConfig = z.output<typeof hardwareSection>
