/**
 * Plans a gateway's engines: those of the recipe, with the recipe's model as policy version 0.
 *
 * in   the resolved recipe, the model's directory        out  engines to start, each under version 0
 */
import { engines, type PlannedEngine, type PlannedEngines } from '../../actors/inference/engines'
import { startLocalEngine } from '../../backends/engines/local/local'
import type { RecipeConfig } from '../../config'
import { timeoutsOf } from '../../config/estimate/timeouts'
import { type EngineId, policyVersion } from '../../messages/ids'
import type { Log } from '../../runtime/log'

export function gatewayEngines(config: RecipeConfig, modelDirectory: string, log: Log): PlannedEngines {
  const { contextTokens } = config.limits
  const startTimeoutMs = timeoutsOf(config).engineStartMs
  const local = (id: EngineId) =>
    startLocalEngine({ id, modelDirectory, ...config.engine, contextTokens, version: 0, startTimeoutMs, log })
  const planned = engines(
    { config, log, learns: false, ...(config.engine.kind === 'local' ? { startEngine: local } : {}) },
    modelDirectory,
  )
  if (config.engine.kind === 'local') return planned
  const first = { version: policyVersion(0), directory: modelDirectory, digest: '', keepKv: false }
  const withVersion = (one: PlannedEngine): PlannedEngine => ({
    ...one,
    async start(signal, env) {
      const engine = await one.start(signal, env)
      // A server that already has the model's weights only notes their version number.
      await engine.updateWeights(first)
      return engine
    },
  })
  return { ...planned, engines: planned.engines.map(withVersion) }
}
