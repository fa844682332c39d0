/**
 * Opens the tools of a run: the recipe's own, built-in ones, functions of a Python file, and those of MCP servers.
 *
 * in   the recipe and its `tools` section        out  one tool for each name, and the schemas that prompts describe
 * Invariant: no two tools share a name, and every schema has a tool behind it; otherwise the run ends at its start.
 */

import type { Recipe, RecipeConfig } from '../../config'
import type { ToolSchema } from '../../config/toolSchema'
import type { RolloutEnvironments } from '../../environments'
import { bashTool, editorTool, mcpTool, submitTool } from '../../environments/tools/schemas'
import { toolOutcome } from '../../kernels'
import { TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { didYouMean } from '../../runtime/settings/nearestName'
import type { Sandbox } from '../../sandbox/sandbox'
import { notebookTool, runNotebookCell } from '../../sandbox/tools/notebookTool'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { environmentOf } from './codeEnvironment'
import { environmentTool } from './environmentTool'
import { functionTool } from './functionTool'
import type { McpServer } from './mcpServer'
import { functionSchemas, pythonFunction } from './pythonFunctions'
import { pythonToolIn } from './pythonTool'
import type { Tool } from './toolPort'

export interface RunToolsOptions {
  readonly config: Pick<RecipeConfig, 'tools'>
  readonly recipe: Pick<Recipe, 'tools' | 'toolFunctions'>
  readonly log?: Pick<Log, 'warn'>
  /** Opens tasks' environments, at the first call of a tool that acts in one. Absent: such tools reject every call. */
  readonly environments?: () => Promise<RolloutEnvironments>
}

export interface RunTools {
  readonly schemas: readonly ToolSchema[]
  readonly tools: ReadonlyMap<string, Tool>
  close(): Promise<void>
}

const onFiles: readonly ToolSchema[] = [bashTool, editorTool, mcpTool, submitTool]
const builtIn: readonly ToolSchema[] = [pythonTool, notebookTool, ...onFiles]

/**
 * Lists the schemas that prompts describe. Starts the MCP servers, reads their schemas, and closes them again.
 * @throws TroupeError config.no_tool (an unknown name), config.tool_twice, config.bad_tool_file, config.mcp_failed
 */
export async function toolSchemas(options: RunToolsOptions): Promise<readonly ToolSchema[]> {
  const functions = await functionsOf(options)
  const servers = await openServers(options)
  try {
    return await sayMissing(options, all(options, functions, servers))
  } finally {
    await closeServers(servers)
  }
}

/**
 * Opens the tools of a run.
 * @throws TroupeError config.no_tool (an unknown name, or a recipe's tool without a function), config.tool_twice,
 * config.bad_tool_schema, config.bad_tool_file, config.mcp_failed, sandbox.level_unmet (no sessions for the notebook)
 */
export async function openRunTools(options: RunToolsOptions, sandbox: Sandbox): Promise<RunTools> {
  const own = namedTools(options)
  const { toolFunctions = {} } = options.recipe
  const { memoryMb } = options.config.tools
  const tools = new Map<string, Tool>()
  for (const schema of own) {
    const run = toolFunctions[schema.name]
    if (run !== undefined) tools.set(schema.name, functionTool(schema, run))
    else if (actsInEnvironment(schema.name))
      tools.set(schema.name, environmentTool(schema.name, options.environments ?? noEnvironments))
    else if (schema.name === notebookTool.name) tools.set(schema.name, notebookIn(sandbox, memoryMb))
    // A schema without a function is the Python tool if it takes `code`: a recipe may give that tool its own name and
    // description.
    else if (!takesCode(schema))
      throw bad('config.no_tool', `the recipe's tool '${schema.name}' has no function in toolFunctions`)
    else tools.set(schema.name, pythonToolIn(sandbox, memoryMb))
  }
  const functions = await functionsOf(options)
  const servers = await openServers(options)
  try {
    const schemas = await sayMissing(options, all(options, functions, servers))
    const { functions: from, python } = options.config.tools
    for (const schema of functions) tools.set(schema.name, pythonFunction(schema, from!, { sandbox, memoryMb, python }))
    for (const { server } of servers) for (const { name } of server.schemas) tools.set(name, server.tool(name))
    return { schemas, tools, close: () => closeServers(servers) }
  } catch (thrown) {
    await closeServers(servers)
    throw thrown
  }
}

/**
 * Returns true if a tool of the run runs Python in the interpreter that `codeEnvironment.ts` chooses: code that the
 * model writes, or a function of the recipe's Python file.
 */
export const runsCode = (options: RunToolsOptions): boolean =>
  options.config.tools.functions !== undefined || namedTools(options).some(schema => isCode(options, schema))

const isCode = ({ recipe: { toolFunctions = {} } }: RunToolsOptions, schema: ToolSchema) =>
  toolFunctions[schema.name] === undefined && takesCode(schema)

/** True for the built-in tools of tasks with an environment: `bash`, `str_replace_editor`, `mcp`, `submit`. */
export const actsInEnvironment = (name: string): boolean => onFiles.some(tool => tool.name === name)

/** True if the tool has a parameter `code`. A recipe's tool with this parameter and no function is the Python tool. */
export const takesCode = ({ parameters }: ToolSchema) =>
  typeof parameters.properties === 'object' && parameters.properties !== null && 'code' in parameters.properties

/**
 * Returns the schemas of the tools in `tools.names`, the recipe's own or else built-in ones; without `tools.names`, of
 * all tools of the recipe. Functions of a Python file and tools of MCP servers are not included. @throws TroupeError
 * config.no_tool (an unknown name)
 */
export function namedTools({ config, recipe }: RunToolsOptions): readonly ToolSchema[] {
  const { names } = config.tools
  if (names === undefined) return recipe.tools
  const known = [...recipe.tools, ...builtIn.filter(({ name }) => !recipe.tools.some(tool => tool.name === name))]
  return names.map(name => {
    const found = known.find(tool => tool.name === name)
    if (found !== undefined) return found
    const all = known.map(tool => tool.name)
    throw bad(
      'config.no_tool',
      `tools.names: unknown tool '${name}'${didYouMean(name, all)}; known tools: ${all.join(', ')}`,
    )
  })
}

/** Schemas of the functions of the recipe's Python file. @throws TroupeError config.bad_tool_file */
const functionsOf = async ({ config: { tools } }: RunToolsOptions): Promise<readonly ToolSchema[]> =>
  tools.functions === undefined ? [] : functionSchemas(tools.functions)

function all(
  options: RunToolsOptions,
  functions: readonly ToolSchema[],
  servers: readonly Opened[],
): readonly ToolSchema[] {
  const schemas = [...namedTools(options), ...functions, ...servers.flatMap(({ server }) => server.schemas)]
  const names = schemas.map(({ name }) => name)
  const twice = names.find((name, at) => names.indexOf(name) < at)
  if (twice === undefined) return schemas
  const from = servers.flatMap(({ name, server }) => (server.schemas.some(one => one.name === twice) ? [name] : []))
  const message = `two tools are named '${twice}'${from.length > 0 ? ` (MCP: ${from.join(', ')})` : ''}`
  throw bad('config.tool_twice', message, 'rename one of them, or leave it out: tools.names, tools.mcp.NAME.tools')
}

/**
 * Adds a list of the missing modules (`environmentOf`) to the description of each tool that runs the model's code, so
 * that the model does not try to import them. Changes no schema if none is missing, or if the interpreter does not
 * answer; opening the sandbox then reports the interpreter's error.
 */
async function sayMissing(options: RunToolsOptions, schemas: readonly ToolSchema[]): Promise<readonly ToolSchema[]> {
  if (!schemas.some(schema => isCode(options, schema))) return schemas
  const { missing } = await environmentOf(options.config.tools).catch(() => ({ missing: [] }))
  if (missing.length === 0) return schemas
  const words = `These modules are not installed: ${missing.join(', ')}.`
  return schemas.map(schema =>
    isCode(options, schema) ? { ...schema, description: `${schema.description} ${words}` } : schema,
  )
}

interface Opened {
  readonly name: string
  readonly server: McpServer
}

async function openServers({ config, log }: RunToolsOptions): Promise<readonly Opened[]> {
  const wanted = Object.entries(config.tools.mcp)
  if (wanted.length === 0) return []
  // The MCP module is loaded here because its SDK takes a third of a second, and most runs have no MCP server.
  const { openMcpServer } = require('./mcpServer') as typeof import('./mcpServer')
  const opened = await Promise.allSettled(
    wanted.map(async ([name, server]) => ({ name, server: await openMcpServer(name, server, log) })),
  )
  const servers = opened.flatMap(one => (one.status === 'fulfilled' ? [one.value] : []))
  const fault = opened.find(one => one.status === 'rejected')
  if (fault === undefined) return servers
  await closeServers(servers)
  throw fault.reason
}

const closeServers = async (servers: readonly Opened[]) => {
  await Promise.all(servers.map(({ server }) => server.close()))
}

function notebookIn(sandbox: Sandbox, memoryMb: number): Tool {
  if (sandbox.noSessions !== undefined)
    throw bad(
      'sandbox.level_unmet',
      `the tool '${notebookTool.name}' needs sandbox sessions, which are not available: ${sandbox.noSessions}`,
      `see \`troupe doctor\`, or leave ${notebookTool.name} out of tools.names`,
    )
  return async ({ code }, { timeoutMs, trajectory = 'alone', cells = [] }, signal) => {
    if (typeof code !== 'string') {
      return toolOutcome({ status: 'rejected', reason: 'code must be a string' })
    }
    const cell = { code, session: trajectory, before: cells }
    const result = await runNotebookCell(sandbox, cell, { timeoutMs, memoryMb, signal })
    return { ...result, timeoutMs }
  }
}

const noEnvironments = async (): Promise<never> => {
  const message = 'the tool acts in the environment of a task, but this process opens no environments'
  throw bad('config.no_environments', message, 'run these tasks with `troupe train` or `troupe rollout`')
}

const knownTools = () =>
  `built-in tools: ${builtIn.map(({ name }) => name).join(', ')}; a recipe defines others with \`tools\` and \`toolFunctions\``

const bad = (code: string, message: string, hint = knownTools()) =>
  new TroupeError(code, { boundary: 'config', retriable: false, message, hint })
