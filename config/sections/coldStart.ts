/** The supervised phase before reinforcement learning. */
import { z } from 'zod'
import { positive } from './numbers'

export const coldStartSection = z.strictObject({
  demonstrations: positive,
  learningRate: z.number().positive().default(5e-6),
  epochs: positive.default(3),
  batchSequences: positive.default(128),
  warmupShare: z.number().min(0).max(1).default(0.04),
  /**
   * Describes the recipe's tools in each conversation. Default: as prompts do. Switch it off if conversations bring their own.
   */
  toolsInPrompt: z.boolean().optional(),
  maxGradNorm: z.number().positive().default(1),
})
