/**
 * A bus and a blob store whose writes wait while the disk is full, instead of failing.
 *
 * in   a bus and a blob store, a pause      out  the same, with appends and puts that wait for room
 * Invariant: the number of waiting writes is bounded: each actor and each running request waits with one append. Kafka
 * has no file here, so its appends pass unchanged, and so do those of a memory bus.
 */
import type { DiskPause } from '../disk/diskPause'
import type { BlobStore } from './blobs'
import type { Bus, NewRecord } from './bus'

/** Bytes of a record beside its value: key, headers, and its share of lmdb's pages. */
const recordOverhead = 256

export function pausingBus(bus: Bus, pause: DiskPause): Bus {
  const { directory } = bus
  if (directory === undefined) return bus
  const needOf = (bytes: number) => ({ what: 'the log', directory, bytes, stopsClock: true })
  return {
    ...bus,
    append: records => pause.attempt(needOf(bytesOf(records)), () => bus.append(records)),
    createTopics: topics => pause.attempt(needOf(0), () => bus.createTopics(topics)),
  }
}

export function pausingBlobs(blobs: BlobStore, pause: DiskPause): BlobStore {
  const { directory } = blobs
  if (directory === undefined) return blobs
  return {
    ...blobs,
    put: bytes =>
      pause.attempt({ what: 'blobs', directory, bytes: bytes.length, stopsClock: true }, () => blobs.put(bytes)),
  }
}

function bytesOf(records: readonly NewRecord[]): number {
  let bytes = 0
  for (const { value } of records) bytes += value.length + recordOverhead
  return bytes
}
