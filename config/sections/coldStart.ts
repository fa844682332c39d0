/** The supervised phase before reinforcement learning. */
import { z } from 'zod'
import { positive } from './numbers'

export const coldStartSection = z.strictObject({
  demonstrations: positive,
  learningRate: z.number().positive().default(5e-6),
  epochs: positive.default(3),
  batchSequences: positive.default(128),
  warmupShare: z.number().min(0).max(1).default(0.04),
  /** Whether conversations describe the recipe's tools. Default: as prompts do. Off where they bring tools of their own. */
  toolsInPrompt: z.boolean().optional(),
  maxGradNorm: z.number().positive().default(1),
})
