/** The model that a run begins with: a directory, or random weights of an architecture. */
import { z } from 'zod'
import { positive } from './numbers'

export const modelSection = z.discriminatedUnion('from', [
  z.strictObject({
    from: z.literal('directory'),
    /** A directory that `transformers` loads. */
    path: z.string(),
    /** Chat template file; default: the directory's own. */
    template: z.string().optional(),
    /** The directory's transformers config, at least `model_type`: a dry run needs nothing else of the directory. */
    architecture: z.record(z.string(), z.unknown()).optional(),
  }),
  z.strictObject({
    from: z.literal('random'),
    /** A transformers config, at least `model_type`. */
    config: z.record(z.string(), z.unknown()),
    /** Size of the BPE vocabulary that is trained on the demonstrations. */
    vocabulary: positive,
    /** Texts that become one token each. */
    addedTokens: z.array(z.string()).default([]),
    template: z.string(),
  }),
])
