/** The recipe's cold start: supervised fine-tuning on demonstrations before reinforcement learning. */
import { z } from 'zod'
import { count, positive } from './numbers'

export const coldStartSection = z.strictObject({
  demonstrations: positive,
  learningRate: z.number().positive().default(5e-6),
  epochs: positive.default(3),
  batchSequences: positive.default(128),
  warmupShare: z.number().min(0).max(1).default(0.04),
  /**
   * true: each conversation begins with a description of the recipe's tools. Default: as in prompts (`tools.inPrompt`).
   * Switch it off if the conversations contain a description of their own.
   */
  toolsInPrompt: z.boolean().optional(),
  /**
   * Optimizer updates between two checkpoints of the cold start; a resumed run continues from the newest. 0: no
   * checkpoints.
   */
  checkpointEvery: count.default(500),
  maxGradNorm: z.number().positive().default(1),
})
