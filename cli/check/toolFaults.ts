/**
 * Checks the recipe's tools: names, functions, schemas, the interpreter and packages of the model's code, programs and
 * secrets of MCP servers.
 *
 * in   a recipe        out  the faults; the schemas that a prompt shows, those of MCP servers excepted
 * Invariant: starts no sandbox and no server. The file of `tools.functions` is imported, as a run does.
 */
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { codeOptions } from '../../actors/tools/codeEnvironment'
import { functionTool } from '../../actors/tools/functionTool'
import { functionSchemas } from '../../actors/tools/pythonFunctions'
import { actsInEnvironment, namedTools, takesCode } from '../../actors/tools/runTools'
import type { Recipe, RecipeConfig } from '../../config'
import type { ToolSchema } from '../../config/toolSchema'
import { resolveSecret, type SecretRef } from '../../runtime/secrets/secretReference'
import { notebookTool } from '../../sandbox/tools/notebookTool'
import { error, type Fault, faultsOf, placed } from './fault'

export async function toolFaults(
  config: RecipeConfig,
  recipe: Recipe,
): Promise<{ readonly faults: readonly Fault[]; readonly schemas: readonly ToolSchema[] }> {
  const faults: Fault[] = []
  const schemas: ToolSchema[] = []
  const { tools } = config
  for (const [at, name] of (tools.names ?? [undefined]).entries()) {
    const names = name === undefined ? {} : { names: [name] }
    faults.push(
      ...faultsOf(name === undefined ? 'tools' : `tools.names.${at}`, () => {
        const { names: _, ...others } = tools
        schemas.push(...namedTools({ config: { tools: { ...others, ...names } }, recipe }))
      }),
    )
  }
  const own = schemas.length
  if (tools.functions !== undefined) {
    try {
      schemas.push(...(await functionSchemas(tools.functions)))
    } catch (thrown) {
      faults.push(placed(thrown, 'tools.functions'))
    }
  }
  const { toolFunctions = {} } = recipe
  for (const [at, schema] of schemas.entries()) {
    const { name } = schema
    if (schemas.findIndex(other => other.name === name) < at)
      faults.push(
        error('config.tool_twice', `tool ${name}`, `two tools are named '${name}'`, 'give each tool a name of its own'),
      )
    if (at >= own) continue
    const run = toolFunctions[name]
    if (run !== undefined) faults.push(...faultsOf(`tool ${name}`, () => functionTool(schema, run)))
    else if (name !== notebookTool.name && !actsInEnvironment(name) && !takesCode(schema))
      faults.push(
        error(
          'config.no_tool',
          `tool ${name}`,
          `the recipe's tool '${name}' has no function in toolFunctions`,
          `add it: toolFunctions: { ${name}: (args) => … }`,
        ),
      )
  }
  for (const name of Object.keys(toolFunctions)) {
    if (!recipe.tools.some(tool => tool.name === name))
      faults.push(
        error(
          'config.no_tool',
          `toolFunctions.${name}`,
          'has no schema in `tools`, so that no prompt shows it',
          `add {name: '${name}', description, parameters} to tools`,
        ),
      )
  }
  return { faults: [...faults, ...interpreterFaults(config), ...mcpFaults(config)], schemas }
}

function interpreterFaults({ tools }: RecipeConfig): readonly Fault[] {
  const { python } = tools
  if (python !== undefined && onPath(python) === undefined)
    return [
      error(
        'process.no_python',
        'tools.python',
        `${python} is not a program`,
        'give the path of a Python 3.10 to 3.13, or leave the field out',
      ),
    ]
  return faultsOf('tools.packages', () => codeOptions(tools))
}

function mcpFaults({ tools }: RecipeConfig): readonly Fault[] {
  return Object.entries(tools.mcp).flatMap(([name, server]) => {
    const place = `tools.mcp.${name}`
    const secrets = Object.entries('command' in server ? server.env : server.headers)
    const missing = secrets.flatMap(([key, value]) =>
      typeof value === 'string'
        ? []
        : secretFaults(`${place}.${'command' in server ? 'env' : 'headers'}.${key}`, value),
    )
    if (!('command' in server) || onPath(server.command) !== undefined) return missing
    return [
      ...missing,
      error(
        'engine.no_program',
        `${place}.command`,
        notThere(server.command),
        'install the server, or give the path of its program',
      ),
    ]
  })
}

export const secretFaults = (place: string, ref: SecretRef): readonly Fault[] =>
  faultsOf(place, () => resolveSecret(ref))

/** Text of a fault: `onPath` does not find the program. */
export const notThere = (program: string): string =>
  program.includes('/') ? `the program ${program} does not exist` : `no program '${program}' on PATH`

/** Returns the path of a program that is given as a path or as a name on PATH; undefined if it does not exist. */
export function onPath(program: string): string | undefined {
  if (program.includes('/')) return existsSync(program) ? program : undefined
  return (process.env.PATH ?? '')
    .split(delimiter)
    .map(folder => join(folder, program))
    .find(existsSync)
}
