/**
 * Starts the parts of a chat: the renderer of the model's tokens, an engine, and the tools that the model may call.
 *
 * in   a recipe, the source of its tools
 * out  all three, started in parallel; `closers` gets a function that closes each
 * Invariant: if one part does not start, the caller's `closers` close the others, even when they start later.
 */
import { resolve } from 'node:path'
import { engines } from '../../actors/inference/engines'
import { codeOptions } from '../../actors/tools/codeEnvironment'
import { openRunTools, type RunTools } from '../../actors/tools/runTools'
import { startLocalEngine } from '../../backends/engines/local/local'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import type { Recipe, RecipeConfig } from '../../config'
import type { EngineId } from '../../messages/ids'
import { asError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { openSandbox } from '../../sandbox'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { wrong } from './model'

export interface ToolChoice {
  /** False when the model gets no tools. */
  readonly tools?: boolean
  /** Path of a recipe file whose tools the model may call, instead of Python. */
  readonly toolsFrom?: string
}

/**
 * Starts all parts of a chat.
 * @throws TroupeError cli.wrong_usage, and the errors of the engine, the renderer and the sandbox
 */
export async function startParts(
  config: RecipeConfig,
  options: ToolChoice,
  log: Log,
  closers: (() => Promise<unknown>)[],
) {
  if (config.model.from !== 'directory')
    throw wrong('a chat needs a model in a directory, not a random one', 'leave out --set model.from=random')
  const { path: modelDirectory, template } = config.model
  const recipe = toolsOf(options)
  // The parts start in parallel, since each takes seconds.
  const starting = [
    startRenderer({ modelDirectory, ...(template === undefined ? {} : { template }), log }),
    startEngine(config, modelDirectory, log),
    startTools(config, recipe, log),
  ] as const
  const settled = await Promise.allSettled(starting)
  for (const one of settled) if (one.status === 'fulfilled') closers.push(() => one.value.close())
  const fault = settled.find(one => one.status === 'rejected')
  if (fault !== undefined) throw fault.reason
  const [renderer, { engine }, tools] = await Promise.all(starting)
  return { renderer, engine, tools }
}

async function startEngine(config: RecipeConfig, modelDirectory: string, log: Log) {
  const { contextTokens } = config.limits
  const local = (id: EngineId) =>
    startLocalEngine({ id, modelDirectory, ...config.engine, contextTokens, version: 0, log })
  const own = config.engine.kind === 'local' ? { startEngine: local } : {}
  const planned = engines({ config, log, learns: false, ...own }, modelDirectory)
  const engine = await planned.engines[0]!.start().catch(async thrown => {
    await planned.close()
    throw thrown
  })
  return {
    engine,
    async close() {
      await engine.close()
      await planned.close()
    },
  }
}

async function startTools(
  config: RecipeConfig,
  recipe: Pick<Recipe, 'tools' | 'toolFunctions'>,
  log: Log,
): Promise<RunTools> {
  const sandbox = await openSandbox({ ...codeOptions(config.tools), lanes: Math.max(4, config.limits.callsPerTurn) })
  try {
    const tools = await openRunTools({ config, recipe, log }, sandbox)
    return {
      ...tools,
      async close() {
        await tools.close()
        await sandbox.close()
      },
    }
  } catch (thrown) {
    await sandbox.close()
    throw thrown
  }
}

function toolsOf({ tools, toolsFrom }: ToolChoice): Pick<Recipe, 'tools' | 'toolFunctions'> {
  if (tools === false) return { tools: [] }
  if (toolsFrom === undefined) return { tools: [pythonTool] }
  try {
    const { recipe } = require(resolve(toolsFrom)) as { recipe?: Recipe }
    if (recipe !== undefined) return recipe
  } catch (thrown) {
    throw wrong(
      `--tools-from ${toolsFrom} cannot be loaded: ${asError(thrown).message}`,
      'correct the file, or give another .ts or .js file',
    )
  }
  throw wrong(`${toolsFrom} does not export 'recipe'`, 'add: export const recipe = defineRecipe({…})')
}
