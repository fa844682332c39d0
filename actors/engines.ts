/**
 * The engines of a run, as its recipe names them: processes of its own, or servers that somebody else has started.
 *
 * in   the recipe's engine, where the model is        out  for each engine its name, how to start it, and how long to try
 * Invariant: a server that does not answer when the run begins, or does not fit it, ends the run with the reason; one that
 * goes away later is waited for, and the others go on.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type EngineId, engineId } from '../messages/ids'
import type { Engine } from '../runtime/engine'
import { startLocalEngine } from '../runtime/engines/local'
import { startOpenaiEngine } from '../runtime/engines/openai'
import { startSglangEngine } from '../runtime/engines/sglang'
import { startVllmEngine } from '../runtime/engines/vllm'
import { asError, TroupeError } from '../runtime/errors'
import type { Log } from '../runtime/log'
import { longestContext, type RecipeConfig } from '../runtime/recipe'
import { startRenderer } from '../runtime/rendererProcess'
import { resolveSecret } from '../runtime/secret'
import type { RestartPolicy } from '../runtime/supervisor'
import { type SharedRenderer, sharedRenderer } from './sharedRenderer'

export interface EnginesOptions {
  readonly config: RecipeConfig
  readonly log: Log
  readonly learns: boolean
  /** Engines other than the recipe's: for embedding and benchmarks. */
  readonly startEngine?: (id: EngineId, modelDirectory: string) => Promise<Engine>
}

export interface PlannedEngine {
  readonly id: EngineId
  start(): Promise<Engine>
  /** Over the policy of a lifeline. */
  readonly restart?: Partial<RestartPolicy>
}

export interface PlannedEngines {
  readonly engines: readonly PlannedEngine[]
  close(): Promise<void>
}

/** A server is not ours to start again: it is waited for, less and less often. */
const waitForServer: Partial<RestartPolicy> = {
  maxRestarts: Number.MAX_SAFE_INTEGER,
  withinMs: 600_000,
  backoffMs: 1000,
  maxBackoffMs: 30_000,
}

/** Engines are named `<name>-<k>`, by default after their kind. */
export function engines(options: EnginesOptions, modelDirectory: string, name?: string): PlannedEngines {
  const { config, log, startEngine } = options
  const { kind, count, urls } = config.engine
  const named = (k: number) => engineId(`${name ?? kind}-${k}`)
  const given = startEngine ?? (kind === 'local' ? localEngine(options) : undefined)
  if (given !== undefined) {
    const planned = Array.from({ length: count }, (_, k) => ({
      id: named(k),
      start: () => given(named(k), modelDirectory),
    }))
    return { engines: planned, close: async () => {} }
  }
  /** Reads the tokens of every server; it starts with the first of them. */
  const renderer = sharedRenderer(() => startRenderer({ modelDirectory, log }))
  return {
    engines: urls.map((url, k) => ({
      id: named(k),
      start: atFirst(async () => {
        await renderer.ready()
        return startServer(options, named(k), url, modelDirectory, renderer)
      }),
      restart: waitForServer,
    })),
    close: () => renderer.close(),
  }
}

async function startServer(
  { config, learns, log }: EnginesOptions,
  id: EngineId,
  url: string,
  modelDirectory: string,
  renderer: SharedRenderer,
): Promise<Engine> {
  const { apiKey, maxSequences, kind, model, pause } = config.engine
  const traits = await modelTraits(modelDirectory)
  const server = {
    id,
    url,
    expected: {
      ...traits,
      contextTokens: longestContext(config),
      trained: learns,
      ...(config.train.lora === undefined ? {} : { adapterRank: config.train.lora.rank }),
      decode: (tokens: Int32Array) => renderer.decode(tokens),
      maxSequences,
    },
    ...(apiKey === undefined ? {} : { token: resolveSecret(apiKey) }),
  }
  switch (kind) {
    case 'vllm': {
      const engine = await startVllmEngine(server)
      log.info({ engine: id, url, ...engine.traits }, 'a vLLM server takes part')
      return engine
    }
    case 'sglang': {
      const engine = await startSglangEngine({ ...server, pause })
      log.info(
        { engine: id, url, ...engine.traits },
        'an SGLang server takes part; this engine has never met a real one',
      )
      return engine
    }
    case 'openai': {
      const encode = (text: string) => renderer.encode(text)
      const engine = await startOpenaiEngine({ ...server, encode, ...(model === undefined ? {} : { model }) })
      log.info({ engine: id, url, ...engine.capabilities }, 'an OpenAI-compatible server takes part; it is not trained')
      return engine
    }
    case 'local':
      throw new Error('a local engine has no URL')
  }
}

/** As long as it never was up, nothing is worth waiting for: the address or the server is wrong. */
function atFirst(start: () => Promise<Engine>): () => Promise<Engine> {
  let wasUp = false
  return async () => {
    try {
      const engine = await start()
      wasUp = true
      return engine
    } catch (thrown) {
      const error = asError(thrown)
      if (wasUp || (error instanceof TroupeError && !error.retriable)) throw error
      throw new TroupeError('engine.unreachable', {
        boundary: 'engine',
        retriable: false,
        message: error.message,
        hint:
          (error instanceof TroupeError ? error.hint : undefined) ?? 'start the server first; docs/engines.md says how',
        cause: error,
      })
    }
  }
}

interface ModelConfig {
  readonly vocab_size?: number
  readonly tie_word_embeddings?: boolean
  readonly text_config?: ModelConfig
}

/** What the model's config.json says. Rows of the embedding may be more than its tokenizer has tokens. */
async function modelTraits(modelDirectory: string): Promise<{ vocabulary: number; tiedHead: boolean }> {
  const file = join(modelDirectory, 'config.json')
  const config = JSON.parse(await readFile(file, 'utf8')) as ModelConfig
  const { vocab_size: vocabulary = 0, tie_word_embeddings = false } = { ...config.text_config, ...config }
  if (Number.isInteger(vocabulary) && vocabulary > 0) return { vocabulary, tiedHead: tie_word_embeddings }
  throw new TroupeError('config.no_vocabulary', {
    boundary: 'config',
    retriable: false,
    message: `${file} has no vocab_size`,
    hint: 'give the directory of a causal language model: model.path',
  })
}

const localEngine =
  ({ config, log }: EnginesOptions) =>
  (id: EngineId, modelDirectory: string): Promise<Engine> => {
    const contextTokens = longestContext(config)
    return startLocalEngine({ id, modelDirectory, ...config.engine, contextTokens, version: -1, log })
  }
