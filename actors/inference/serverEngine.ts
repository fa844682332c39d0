/**
 * Connects the engine of a recipe to a server: vLLM, SGLang or an OpenAI-compatible one.
 *
 * in   the recipe, an address, the model's directory        out  the engine over that server
 * Invariant: the server's model and limits are checked before it is used. If they do not fit the run, the error names
 * the difference.
 */
import type { Engine } from '../../backends/engines/engine'
import { startOpenaiEngine } from '../../backends/engines/openai/openai'
import { startSglangEngine } from '../../backends/engines/sglang/sglang'
import { startVllmEngine } from '../../backends/engines/vllm/vllm'
import { longestContext, type RecipeConfig } from '../../config'
import { timeoutsOf } from '../../config/estimate/timeouts'
import type { EngineId } from '../../messages/ids'
import type { Log } from '../../runtime/log'
import { resolveSecret } from '../../runtime/secrets/secretReference'
import { modelTraits } from './modelTraits'
import type { SharedRenderer } from './sharedRenderer'

export interface ServerOptions {
  readonly config: RecipeConfig
  readonly learns: boolean
  readonly log: Log
}

export interface ServerPlace {
  readonly id: EngineId
  readonly url: string
  /** Key of a server that this run started. Default: the recipe's `engine.apiKey`. */
  readonly token?: string
  readonly modelDirectory: string
  readonly renderer: SharedRenderer
}

/**
 * Connects to one server of the recipe's kind and checks it. Rejects with the errors of startVllmEngine,
 * startSglangEngine or startOpenaiEngine.
 */
export async function startServer({ config, learns, log }: ServerOptions, place: ServerPlace): Promise<Engine> {
  const { id, url, modelDirectory, renderer } = place
  const { apiKey, maxSequences, kind, model, pause } = config.engine
  const { firstTokenMs, weightUpdateMs } = timeoutsOf(config)
  const traits = await modelTraits(modelDirectory)
  const server = {
    id,
    url,
    firstTokenMs,
    weightUpdateMs,
    expected: {
      ...traits,
      contextTokens: longestContext(config),
      trained: learns,
      ...(learns && config.train.lora !== undefined ? { adapterRank: config.train.lora.rank } : {}),
      decode: (tokens: Int32Array) => renderer.decode(tokens),
      maxSequences,
    },
    ...tokenOf(place.token ?? (apiKey === undefined ? undefined : resolveSecret(apiKey))),
  }
  switch (kind) {
    case 'vllm': {
      const plan = config.hardware?.plan
      const sleeps = plan?.kind === 'colocated' ? { sleepLevel: plan.sleepLevel } : {}
      const engine = await startVllmEngine({ ...server, ...sleeps })
      log.info({ engine: id, url, ...engine.traits }, 'a vLLM server joined')
      return engine
    }
    case 'sglang': {
      const engine = await startSglangEngine({ ...server, pause })
      log.info({ engine: id, url, ...engine.traits }, 'an SGLang server joined')
      return engine
    }
    case 'openai': {
      const encode = (text: string) => renderer.encode(text)
      const engine = await startOpenaiEngine({ ...server, encode, ...(model === undefined ? {} : { model }) })
      log.info(
        { engine: id, url, ...engine.capabilities },
        'an OpenAI-compatible server joined; it gets no new weights',
      )
      return engine
    }
    default:
      throw new Error(`engine kind '${kind}' is not a server and has no URL`)
  }
}

const tokenOf = (token: string | undefined) => (token === undefined ? {} : { token })
