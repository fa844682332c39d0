/**
 * Plans the engines that a run's recipe names: local processes, servers that somebody else or this run starts, engines
 * that repeat a recorded run's answers, or simulated engines.
 *
 * in   the recipe's engine, the model's directory
 * out  for each engine its name, how to start it, its restart policy
 * Invariant: if a server of `engine.urls` does not answer when the run begins, or does not match the model, the run
 * ends with an error that says so. If such a server goes away later, the run waits for it without a time limit, and its
 * other engines work meanwhile.
 */

import type { Engine } from '../../backends/engines/engine'
import { startLocalEngine } from '../../backends/engines/local/local'
import type { OwnLog } from '../../backends/engines/recorded/log'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { longestContext, type RecipeConfig } from '../../config'
import { timeoutsOf } from '../../config/estimate/timeouts'
import { isLaunched, isServer } from '../../config/sections/engine'
import { type EngineId, engineId } from '../../messages/ids'
import type { RestartPolicy } from '../../runtime/actor/restartPolicy'
import { asError, TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { fileEngine } from './fileEngine'
import { launchedRestarts, startLaunched } from './launchedEngine'
import { startServer } from './serverEngine'
import { type SharedRenderer, sharedRenderer } from './sharedRenderer'

/**
 * Options of a run's engines. `run`, `bus`, `blobs`, `directory`: the run's own log. They are needed only if
 * `engine.recording` names a run without a bus: that run is then looked up on the bus of this run.
 */
export interface EnginesOptions extends Partial<OwnLog> {
  readonly config: RecipeConfig
  readonly log: Log
  readonly learns: boolean
  /** Starts an engine in place of those that the recipe names, for embedding and benchmarks. */
  readonly startEngine?: (id: EngineId, modelDirectory: string) => Promise<Engine>
}

export interface PlannedEngine {
  readonly id: EngineId
  /**
   * Starts the engine. `signal` aborts when the engine is no longer wanted. `env`: variables that limit its process to
   * its GPUs.
   */
  start(signal?: AbortSignal, env?: Readonly<Record<string, string>>): Promise<Engine>
  /** Restart policy, where it differs from the default of `processActor`. */
  readonly restart?: Partial<RestartPolicy>
  /** True for a server that somebody else runs: failed starts in a row, after one that succeeded, are not counted. */
  readonly waitsForever?: boolean
}

export interface PlannedEngines {
  readonly engines: readonly PlannedEngine[]
  close(): Promise<void>
}

/**
 * Restart policy for a server that somebody else runs: Troupe cannot restart it, so it tries to connect again for ever,
 * first after 1 s, then after longer pauses of up to 30 s.
 */
const waitForServer: Partial<RestartPolicy> = {
  maxRestarts: Number.MAX_SAFE_INTEGER,
  withinMs: 600_000,
  backoffMs: 1000,
  maxBackoffMs: 30_000,
}

/**
 * Plans the engines and names them `<name>-<k>`, with k from 0; the default name is `engine.kind` of the recipe.
 * `reader` decodes and encodes the tokens of all engines except local ones and those of `startEngine`. Default: a
 * new renderer for these engines, which the first engine that needs it starts. `close` of the result closes the reader,
 * also one that the caller passed; for local engines and those of `startEngine` it does nothing.
 */
export function engines(
  options: EnginesOptions,
  modelDirectory: string,
  name?: string,
  reader?: SharedRenderer,
): PlannedEngines {
  const { config, log, startEngine } = options
  const { kind, count, urls } = config.engine
  const named = (k: number) => engineId(`${name ?? kind}-${k}`)
  type Start = (
    id: EngineId,
    modelDirectory: string,
    signal?: AbortSignal,
    env?: Readonly<Record<string, string>>,
  ) => Promise<Engine>
  const counted = (start: Start): readonly PlannedEngine[] =>
    Array.from({ length: count }, (_, k) => ({
      id: named(k),
      start: (signal, env) => start(named(k), modelDirectory, signal, env),
    }))
  const template = config.model.from === 'directory' ? config.model.template : undefined
  const chosen = template === undefined ? {} : { template }
  const renderer = reader ?? sharedRenderer(() => startRenderer({ modelDirectory, ...chosen, log }))
  if (startEngine === undefined && isLaunched(config.engine)) {
    const start: Start = (id, directory, signal, env) =>
      startLaunched({ ...options, id, directory, renderer, signal, env })
    const engines = counted(start).map(engine => ({ ...engine, restart: launchedRestarts }))
    return { engines, close: () => renderer.close() }
  }
  const given = startEngine ?? (kind === 'local' ? localEngine(options) : undefined)
  if (given !== undefined) return { engines: counted(given), close: async () => {} }
  if (!isServer(config.engine)) {
    const ofFile = fileEngine(options, renderer)
    const close = async () => {
      await ofFile.close()
      await renderer.close()
    }
    return { engines: counted(ofFile.start), close }
  }
  return {
    engines: urls.map((url, k) => ({
      id: named(k),
      start: atFirst(async () => {
        await renderer.ready()
        return startServer(options, { id: named(k), url, modelDirectory, renderer })
      }),
      restart: waitForServer,
      waitsForever: true,
    })),
    close: () => renderer.close(),
  }
}

/**
 * Makes the error of `start` final (not retriable) as long as no start has succeeded: until the server was up once, its
 * address is probably wrong, and waiting is pointless.
 */
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

const localEngine =
  ({ config, log }: EnginesOptions) =>
  (
    id: EngineId,
    modelDirectory: string,
    signal?: AbortSignal,
    env: Readonly<Record<string, string>> = {},
  ): Promise<Engine> => {
    const contextTokens = longestContext(config)
    const { engineStartMs: startTimeoutMs, weightUpdateMs } = timeoutsOf(config)
    const given = { env, startTimeoutMs, weightUpdateMs, ...(signal === undefined ? {} : { signal }) }
    return startLocalEngine({ id, modelDirectory, ...config.engine, contextTokens, version: -1, log, ...given })
  }
