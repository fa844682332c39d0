/**
 * Public exports of `troupe/runtime`: bus, journal, host, actors, effects.
 * Heavy packages (lmdb, nact, pino, prom-client) load at their first use, so that a program loads only those it uses.
 */
export { defaultRestartPolicy, type RestartPolicy } from './actor/restartPolicy'
export * from './actor/system'
export * from './bus/blobs'
export type * from './bus/bus'
export { type LmdbBusOptions, openLmdbBus } from './bus/lmdb/lmdbBus'
export { type MemoryBusOptions, openMemoryBus } from './bus/memory/memoryBus'
export { type OpenBusOptions, openBus } from './bus/open'
export * from './effects'
export * from './embed'
export * from './errors'
export * from './host/behaviour'
export * from './host/host'
export * from './journal/entries'
export type * from './journal/journal'
export { openJournal } from './journal/openJournal'
export { createLog, type Log, type LogOptions } from './log'
export * from './metrics'
