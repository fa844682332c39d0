/** The model that a run begins with: one from a directory, or random weights of an architecture. */
import { z } from 'zod'
import { positive } from './numbers'

export const modelSection = z.discriminatedUnion('from', [
  z.strictObject({
    from: z.literal('directory'),
    /** Model directory that `transformers` can load. */
    path: z.string(),
    /** File with the chat template; default: the model directory's own. */
    template: z.string().optional(),
    /** Transformers config of the model, at least `model_type`, so that a dry run does not need the directory. */
    architecture: z.record(z.string(), z.unknown()).optional(),
  }),
  z.strictObject({
    from: z.literal('random'),
    /** Transformers config of the architecture, at least `model_type`. */
    config: z.record(z.string(), z.unknown()),
    /**
     * Upper bound on the tokens of the BPE tokenizer that is trained on the demonstrations, special and added ones
     * included.
     */
    vocabulary: positive,
    /** Texts that the tokenizer encodes as one token each. */
    addedTokens: z.array(z.string()).default([]),
    template: z.string(),
  }),
])
