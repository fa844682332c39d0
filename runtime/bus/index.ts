/** Public exports of the bus. Each driver exports only the function that opens it; `openBus` opens any by address. */
export { type BlobStore, memoryBlobs, openFileBlobs } from './blobs'
export type * from './bus'
export { maxRecordBytes } from './busErrors'
export { openKafkaBus } from './kafka/kafkaBus'
export { openLmdbBus } from './lmdb/lmdbBus'
export { openMemoryBus } from './memory/memoryBus'
export { openBus } from './open'
export { murmur2, partitionOf } from './partitioner'
