/** The bus as others use it. Drivers are opened by address; what stands behind them is not exported. */
export { type BlobReference, type BlobStore, memoryBlobs, openFileBlobs } from './blobs'
export type * from './bus'
export { maxRecordBytes } from './busErrors'
export { type LmdbBusOptions, openLmdbBus } from './lmdb'
export { type MemoryBusOptions, openMemoryBus } from './memory'
export { type OpenBusOptions, openBus } from './open'
export { murmur2, partitionOf } from './partitioner'
