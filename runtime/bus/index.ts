/** The bus as others use it. Drivers are opened by address; what stands behind them is not exported. */
export { type BlobStore, memoryBlobs, openFileBlobs } from './blobs'
export type * from './bus'
export { maxRecordBytes } from './busErrors'
export { openKafkaBus } from './kafka/kafkaBus'
export { openLmdbBus } from './lmdb/lmdbBus'
export { openMemoryBus } from './memory/memoryBus'
export { openBus } from './open'
export { murmur2, partitionOf } from './partitioner'
