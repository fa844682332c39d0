/**
 * Defines the loads on which scheduling policies are compared: a base load and a sweep around it, with fixed seeds.
 *
 * kv-headroom was tuned on the base load before the sweep's seeds were fixed, and on the sweep afterwards.
 * The engine is a Qwen3-14B on an H100, fitted to the tables of AIConfigurator (Apache-2.0) for vLLM 0.24.
 */
import type { EngineModel } from './engineModel'
import type { TracedTrajectory } from './trace'
import { baseShape, type WorkloadShape, workload } from './workload'

export const h100: EngineModel = {
  name: 'qwen3-14b-h100',
  family: 'vllm',
  kvTokens: 268_000,
  blockTokens: 16,
  maxSequences: 256,
  maxBatchTokens: 8192,
  prefixSharing: true,
  stepMs: {
    overhead: 0.55,
    denseFloor: 10.2,
    densePerToken: 0.0335,
    decodeBase: 0.44,
    decodePerSequence: 0.0073,
    decodePerKvToken: 5.1e-5,
    prefillBase: 0,
    prefillPerToken: 0,
    prefillPerPair: 1.4e-6,
  },
}

export interface Load {
  readonly name: string
  readonly engines: number
  readonly model: EngineModel
  readonly trace: readonly TracedTrajectory[]
}

const trajectoriesPerEngine = 256

function load(name: string, engines: number, kvTokens: number, shape: Partial<WorkloadShape>, seed: number): Load {
  const groups = (engines * trajectoriesPerEngine) / baseShape.groupSize
  return { name, engines, model: { ...h100, kvTokens }, trace: workload({ ...baseShape, groups, ...shape }, seed) }
}

export const baseLoad = (engines = 64, seed = 1): Load => load('base', engines, h100.kvTokens, {}, seed)

/**
 * Returns 32 loads that vary the KV from scarce to plentiful, the spread of lengths, fast and slow tools, few and many
 * turns.
 */
export function* sweepLoads(engines: number): Generator<Load> {
  let seed = 100
  for (const kvTokens of [134_000, 268_000, 402_000, 1_072_000]) {
    for (const spread of [0.4, 1]) {
      for (const toolMs of [300, 3000]) {
        for (const turns of [
          [1, 5],
          [5, 15],
        ] as const) {
          const name = `${kvTokens / 1000}k KV, spread ${spread}, tools ${toolMs} ms, ${turns.join('–')} turns`
          yield load(name, engines, kvTokens, { spread, toolMs, turns }, seed++)
        }
      }
    }
  }
}
