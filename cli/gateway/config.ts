/**
 * Resolves what a gateway serves: the recipe's sampling, limits, model and engines; options of the command line
 * override the recipe.
 *
 * in   a recipe's name, or none; the options (`GatewayModelOptions`)
 * out  the resolved recipe, whose model is a directory
 * Without a recipe, the defaults are temperature 1 and sampling from the whole distribution (no top-p, no top-k), as
 * training needs it.
 */
import { resolve } from 'node:path'
import { checkContexts } from '../../actors/run/model'
import type { RecipeConfig } from '../../config'
import { engineOverrides } from '../../config/engineAddress'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { chatConfig, wrong } from '../chat/model'

export interface GatewayModelOptions {
  readonly model?: string
  readonly engine?: string
  readonly template: string
  readonly maxTokens?: number
  readonly temperature?: number
  readonly set: readonly string[]
}

/** Default number of calls that a local engine decodes at once, without a recipe; --set overrides it. */
const localSequences = 8
/** Default number of whole contexts that fit a local engine's KV cache, without a recipe; --set overrides it. */
const localContexts = 4

/** Resolves the recipe. @throws TroupeError cli.wrong_usage, config.bad_engine, config.invalid, config.no_recipe */
export async function gatewayConfig(name: string | undefined, options: GatewayModelOptions): Promise<RecipeConfig> {
  if (name === undefined) {
    const config = await chatConfig({ temperature: 1, ...options })
    const isSet = (field: string) => options.set.some(one => one.startsWith(`engine.${field}=`))
    const engine = {
      ...config.engine,
      ...(config.engine.kind !== 'local' || isSet('maxSequences') ? {} : { maxSequences: localSequences }),
      ...(config.engine.kind !== 'local' || isSet('kvTokens')
        ? {}
        : { kvTokens: localContexts * config.limits.contextTokens }),
    }
    return { ...config, name: 'gateway', engine }
  }
  refuseUnused(name, options)
  const model = options.model === undefined ? [] : [`model.from=directory`, `model.path=${resolve(options.model)}`]
  const engine = options.engine === undefined ? [] : engineOverrides([options.engine])
  const { value } = loadRecipe(name, [...model, ...engine, ...options.set]).config
  if (value.model.from !== 'directory')
    throw wrong(`recipe ${name} makes its own random model`, 'give --model DIR, such as the newest checkpoint of a run')
  checkContexts(value, resolve(value.model.path))
  return value
}

/** Refuses options that only a gateway without a recipe has. @throws TroupeError cli.wrong_usage */
function refuseUnused(name: string, { temperature, maxTokens }: GatewayModelOptions): void {
  const given = [
    ['--temperature', 'rollout.sampling.temperature', temperature],
    ['--max-tokens', 'limits.responseTokens', maxTokens],
  ] as const
  for (const [option, field, value] of given)
    if (value !== undefined) throw wrong(`${option} does not apply to recipe ${name}`, `give --set ${field}=${value}`)
}

/**
 * Returns the sampling of the gateway's calls: the recipe's. Without a recipe the temperature may be 0, which a
 * recipe's rollouts may not have; the answers are then greedy, and their logprobs 0.
 */
export function gatewaySampling(
  name: string | undefined,
  { rollout, evaluation }: RecipeConfig,
): RecipeConfig['rollout']['sampling'] {
  return name === undefined ? { ...rollout.sampling, temperature: evaluation.temperature } : rollout.sampling
}
