/** Tools that the model may call. */
import { z } from 'zod'
import { positive } from './numbers'

export const toolsSection = z.strictObject({
  names: z.array(z.string()).default(['execute_python_code_with_standard_io']),
  /** Whether the prompt describes the tools, as hermes templates do. */
  inPrompt: z.boolean().default(true),
  lanes: positive.optional(),
  memoryMb: positive.default(512),
})
