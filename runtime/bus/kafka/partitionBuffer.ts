/**
 * Buffers records of one partition that were fetched and not handled yet.
 *
 * in   fetched records      out  batches for the handler
 * Invariant: `add` returns false, which asks for a pause, while the buffer is at a high-water mark or above; `isLow` is
 * true, which lets fetching continue, while the buffer is at half of both marks or below.
 */
import type { BusRecord } from '../bus'

/** Bytes at which a batch is full; its last record may exceed them. */
const maxBatchBytes = 4 * 1024 * 1024
/** High-water marks of the buffer, in bytes and in records; one fetch may exceed them. */
const highWaterBytes = 4 * 1024 * 1024
const highWaterRecords = 4096

export class PartitionBuffer {
  /** Highest offset known not to be past the partition's end: a commit up to it needs no look-up. */
  end = 0
  private records: BusRecord[] = []
  private bytes = 0

  get isEmpty(): boolean {
    return this.records.length === 0
  }

  /** True while the buffer is at most half full by both high-water marks, so that fetching can continue. */
  get isLow(): boolean {
    return this.bytes <= highWaterBytes / 2 && this.records.length <= highWaterRecords / 2
  }

  /** Adds records (at least one). Returns false when the buffer has reached a high-water mark. */
  add(records: readonly BusRecord[]): boolean {
    this.records.push(...records)
    for (const { value } of records) this.bytes += value.length
    this.end = Math.max(this.end, records.at(-1)!.offset + 1)
    return this.bytes < highWaterBytes && this.records.length < highWaterRecords
  }

  /** Takes the next batch: at most `maxRecords` records, about 4 MiB. */
  take(maxRecords: number): readonly BusRecord[] {
    let bytes = 0
    let count = 0
    while (count < this.records.length && count < maxRecords && bytes < maxBatchBytes)
      bytes += this.records[count++]!.value.length
    this.bytes -= bytes
    return this.records.splice(0, count)
  }

  clear(): void {
    this.records = []
    this.bytes = 0
  }
}
