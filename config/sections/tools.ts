/** The recipe's tools, which the model may call, and the sandbox in which the model's Python runs. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { policyDirectory } from '../../runtime/python'
import { secretSchema } from '../../runtime/secrets/secretReference'
import { positive } from './numbers'

/** Server of the Model Context Protocol: a program to start, or an address. */
const mcpServerSchema = z.union([
  z.strictObject({
    command: z.string().min(1),
    args: z.array(z.string()).default([]),
    /**
     * Environment variables of the program, added to the MCP SDK's default ones (PATH, HOME, …); secrets are
     * references.
     */
    env: z.record(z.string(), z.union([z.string(), secretSchema])).default({}),
    cwd: z.string().optional(),
    /** Names of the server's tools to use; default: all. */
    tools: z.array(z.string()).optional(),
    /** Deadline for the server's first answer, ms. */
    startTimeoutMs: positive.default(30_000),
  }),
  z.strictObject({
    url: z.string().regex(/^https?:\/\/[^@\s]+$/, 'expected an http or https URL without a password'),
    headers: z.record(z.string(), z.union([z.string(), secretSchema])).default({}),
    tools: z.array(z.string()).optional(),
    startTimeoutMs: positive.default(30_000),
  }),
])
export type McpServerConfig = z.output<typeof mcpServerSchema>

/** Pattern of a package with its version, by which `troupe setup packages` checks too. */
const { pattern: pinnedPattern } = JSON.parse(readFileSync(join(policyDirectory(), 'pinned-package.json'), 'utf8')) as {
  pattern: string
}

const pinned = z
  .string()
  .regex(new RegExp(pinnedPattern), 'a package that is not pinned: expected NAME==VERSION, such as pandas==3.1.1')
const modules = z
  .string()
  .regex(/^[A-Za-z_][\w.]*(\+[A-Za-z_][\w.]*)*$/, "expected a module's name, or several joined with +")

const identifier = z.string().regex(/^[A-Za-z_]\w*$/, 'is not the name of a Python function')

/**
 * Python file whose functions are tools. `names`: the functions to use; default: all whose names do not begin with an
 * underscore. `run`: place of the calls. sandbox: the sandbox of the model's code, without files, a network, or state
 * of other calls. beside: a process with all rights of this one, for functions that need files or a network; nothing
 * protects that process from the arguments that the model writes.
 */
const functionsSchema = z.preprocess(
  given => (typeof given === 'string' ? { file: given } : given),
  z.strictObject({
    file: z.string().min(1),
    names: z.array(identifier).min(1).optional(),
    run: z.enum(['sandbox', 'beside']).default('sandbox'),
  }),
)

export const toolsSection = z.strictObject({
  /** Names of the recipe's and built-in tools to use. Default: the tools that the recipe defines. */
  names: z.array(z.string()).optional(),
  /** Python file whose functions are tools, besides those in `names`. */
  functions: functionsSchema.optional(),
  /** MCP servers by a name of the user's choice. Their tools are added to `names`. */
  mcp: z.record(z.string(), mcpServerSchema).default({}),
  /** true: the prompt describes the tools, as hermes templates do. */
  inPrompt: z.boolean().default(true),
  /** Number of calls that one sandbox runs at once. Default: 60 per CPU core; 2 per core at sandbox level `none`. */
  lanes: positive.optional(),
  memoryMb: positive.default(512),
  /** Path or name of the interpreter that runs the model's code. Default: `troupe setup`'s, with numpy and sympy. */
  python: z.string().min(1).optional(),
  /**
   * Pinned packages for the model's code, besides numpy, scipy, sympy, mpmath and networkx; see `troupe setup
   * packages`.
   */
  packages: z.array(pinned).min(1).optional(),
  /**
   * Modules that are imported before the model's code comes, in groups: a program that imports one of a group starts
   * with that group and those before it. Default: numpy; sympy and mpmath; scipy and networkx.
   */
  preload: z.array(modules).max(8).optional(),
})
