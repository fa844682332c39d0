/** The learner: its loss, its optimizer, its checkpoints. */
import { z } from 'zod'
import { count, positive } from './numbers'

export const trainSection = z.strictObject({
  /** 0: an evaluation and nothing else. */
  steps: count.default(300),
  learningRate: z.number().positive().default(1e-6),
  clipLow: z.number().positive().default(0.2),
  clipHigh: z.number().positive().default(0.28),
  lossNorm: z.enum(['batch-tokens', 'group-tokens']).default('batch-tokens'),
  innerSteps: positive.default(1),
  microBatchTokens: positive.default(16_384),
  tisCap: z.number().nonnegative().default(0),
  maxGradNorm: z.number().positive().default(1),
  checkpointEvery: positive.default(1),
  /** Published versions and checkpoints that are kept besides the newest. */
  keepVersions: positive.default(3),
  device: z.string().default('auto'),
  dtype: z.enum(['float32', 'bfloat16']).default('float32'),
  threads: positive.default(2),
})
