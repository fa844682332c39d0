/** What an answer is worth. */
import { z } from 'zod'
import { positive } from './numbers'

export const rewardSection = z.strictObject({
  name: z.string().default('math'),
  /** Where `\boxed{}` counts: inside the last `<answer>` (paper) or anywhere (release). */
  place: z.enum(['answer-tag', 'anywhere']).default('answer-tag'),
  timeoutMs: positive.default(10_000),
})
