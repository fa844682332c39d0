/** Tools that the model may call. */
import { z } from 'zod'
import { secretSchema } from '../../runtime/secret'
import { positive } from './numbers'

/** A server of the Model Context Protocol: a program that is started, or an address. */
const mcpServerSchema = z.union([
  z.strictObject({
    command: z.string().min(1),
    args: z.array(z.string()).default([]),
    /** Besides what every program needs; secrets as references. */
    env: z.record(z.string(), z.union([z.string(), secretSchema])).default({}),
    cwd: z.string().optional(),
    /** Of its tools, these; default: all. */
    tools: z.array(z.string()).optional(),
    /** Until it answers for the first time. */
    startTimeoutMs: positive.default(30_000),
  }),
  z.strictObject({
    url: z.string().regex(/^https?:\/\/[^@\s]+$/, 'an http or https URL without a password'),
    headers: z.record(z.string(), z.union([z.string(), secretSchema])).default({}),
    tools: z.array(z.string()).optional(),
    startTimeoutMs: positive.default(30_000),
  }),
])
export type McpServerConfig = z.output<typeof mcpServerSchema>

export const toolsSection = z.strictObject({
  /** Of those that the recipe brings, and of the built-in ones, exactly these. Default: those that the recipe brings. */
  names: z.array(z.string()).optional(),
  /** By a name of yours. Their tools come on top. */
  mcp: z.record(z.string(), mcpServerSchema).default({}),
  /** Whether the prompt describes the tools, as hermes templates do. */
  inPrompt: z.boolean().default(true),
  lanes: positive.optional(),
  memoryMb: positive.default(512),
})
