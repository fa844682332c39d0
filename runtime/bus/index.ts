/** Public exports of the bus. Drivers are opened by address; their parts are not exported. */
export { type BlobStore, memoryBlobs, openFileBlobs } from './blobs'
export type * from './bus'
export { maxRecordBytes } from './busErrors'
export { openKafkaBus } from './kafka/kafkaBus'
export { openLmdbBus } from './lmdb/lmdbBus'
export { openMemoryBus } from './memory/memoryBus'
export { openBus } from './open'
export { murmur2, partitionOf } from './partitioner'
