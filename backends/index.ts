/**
 * Public surface of the backends (`troupe/backends`): engines, renderer, trainer. Each process's client (gRPC) is
 * loaded at its first use, so that importing one backend does not load the others.
 */
import type { LocalEngine, LocalEngineOptions } from './engines/local/local'
import type { startRenderer as StartRenderer } from './renderer/rendererProcess'
import type { startTrainer as StartTrainer } from './trainer/trainerProcess'

export { type Continuation, type CustomEngineOptions, customEngine } from './engines/custom'
export type * from './engines/engine'
export { GenerationLost } from './engines/engine'
export type { LocalEngine, LocalEngineOptions } from './engines/local/local'
export { type RecordedEngineOptions, RecordedTurns, recordedEngine } from './engines/recorded/recorded'
export { type SimulatedEngineOptions, simulatedEngine } from './engines/simulated/simulated'
export type * from './renderer/renderer'
export { type SftData, writeExamples } from './trainer/exampleFiles'
export type * from './trainer/trainer'

/** Starts the local engine: a transformers model in a process of its own, which ends with this one. */
export const startLocalEngine = (options: LocalEngineOptions): Promise<LocalEngine> =>
  (require('./engines/local/local') as typeof import('./engines/local/local')).startLocalEngine(options)

/** Starts a process for chat templates and tokenizers. */
export const startRenderer: typeof StartRenderer = options =>
  (require('./renderer/rendererProcess') as typeof import('./renderer/rendererProcess')).startRenderer(options)

/** Starts the learner's torch process. */
export const startTrainer: typeof StartTrainer = options =>
  (require('./trainer/trainerProcess') as typeof import('./trainer/trainerProcess')).startTrainer(options)
