/**
 * What all stands on: bus, journal, host, actors, effects. The public surface (`troupe/runtime`). What is heavy (gRPC,
 * lmdb, nact, pino, prom-client) is loaded where it is first used, so that one piece does not cost the others.
 */
import type { LocalEngine, LocalEngineOptions } from './engines/local'
import type { startRenderer as StartRenderer } from './rendererProcess'
import type { startTrainer as StartTrainer } from './trainerProcess'

export { defaultRestartPolicy, type RestartPolicy } from './actor/restartPolicy'
export * from './actor/system'
export * from './bus/blobs'
export type * from './bus/bus'
export { type LmdbBusOptions, openLmdbBus } from './bus/lmdb/lmdbBus'
export { type MemoryBusOptions, openMemoryBus } from './bus/memory/memoryBus'
export { type OpenBusOptions, openBus } from './bus/open'
export * from './effects'
export * from './embed'
export type * from './engine'
export { GenerationLost } from './engine'
export { type Continuation, type CustomEngineOptions, customEngine } from './engines/custom'
export type { LocalEngine, LocalEngineOptions } from './engines/local'
export { type RecordedEngineOptions, RecordedTurns, recordedEngine } from './engines/recorded'
export { type SimulatedEngineOptions, simulatedEngine } from './engines/simulated'
export * from './errors'
export * from './host/behaviour'
export * from './host/host'
export * from './journal/entries'
export * from './journal/journal'
export { createLog, type Log, type LogOptions } from './log'
export * from './metrics'
export type * from './renderer'
export type * from './trainer'

/** A transformers model in a process of its own, which ends with this one. */
export const startLocalEngine = (options: LocalEngineOptions): Promise<LocalEngine> =>
  (require('./engines/local') as typeof import('./engines/local')).startLocalEngine(options)

/** Chat templates and tokenizers, in a process of their own. */
export const startRenderer: typeof StartRenderer = options =>
  (require('./rendererProcess') as typeof import('./rendererProcess')).startRenderer(options)

/** The learner's torch process. */
export const startTrainer: typeof StartTrainer = options =>
  (require('./trainerProcess') as typeof import('./trainerProcess')).startTrainer(options)
