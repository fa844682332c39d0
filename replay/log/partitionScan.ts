/**
 * Reads one partition of a recorded run from an offset on, and skips records that cannot be read.
 *
 * in   a partition, which records are wanted
 * out  entries in order; faults beside them; the offset where the scan ended
 * Invariant: in a scan that ends without an error, each record is delivered, or unwanted, or covered by a fault with
 * its position. A stretch that the bus cannot read gets one fault, found by a number of reads logarithmic in its
 * length; the stretch may include readable records that lie between unreadable ones.
 */
import { decode } from '../../messages/codec'
import type { RunId } from '../../messages/ids'
import { type TopicName, topicOnBus } from '../../messages/topics'
import type { BlobStore } from '../../runtime/bus/blobs'
import type { Bus, BusRecord } from '../../runtime/bus/bus'
import { asError } from '../../runtime/errors'
import type { Entry } from '../../runtime/journal/journal'
import { type Fault, type FaultKind, faultKind } from './faults'
import type { Place } from './place'
import type { Watermark } from './watermark'

export type Want = (headers: BusRecord['headers'], record: BusRecord) => boolean
/** Receives an entry; the scan awaits a returned promise before the next entry. */
export type Take = (entry: Entry, record: BusRecord) => unknown

export interface PartitionScanOptions {
  readonly run: RunId
  readonly bus: Bus
  readonly blobs: BlobStore
  /** Returns the end offset of a partition under `--at`; undefined: the scan reads to the log's end. */
  readonly end: Watermark | undefined
  readonly note: (fault: Fault) => void
}

const readAtOnce = 4096

export function partitionScan({ run, bus, blobs, end: lookEnd, note }: PartitionScanOptions) {
  const fault = (kind: FaultKind, place: Place, message: string): void => note({ kind, ...place, message })

  async function take(record: BusRecord, topic: TopicName, next: number, give: Take): Promise<void> {
    const { partition, offset, timestamp, headers } = record
    let entry: Entry
    try {
      const value = headers.blob === undefined ? record.value : await blobs.get(headers.blob)
      const { writer } = headers
      const place = { topic, partition, offset, timestamp }
      entry = { message: decode({ headers, value }), ...place, ...(writer === undefined ? {} : { writer }) }
    } catch (thrown) {
      const error = asError(thrown)
      const kind = faultKind(error)
      if (kind === undefined) throw thrown
      const torn = kind === 'unreadable' && offset === next - 1
      fault(torn ? 'torn-tail' : kind, { topic, partition, offset }, error.message)
      return
    }
    const taken = give(entry, record)
    if (taken instanceof Promise) await taken
  }

  /**
   * Finds the end of a stretch that the bus cannot read: exponential search, then binary search. `broken`: its first
   * offset.
   */
  async function nextReadable(name: string, partition: number, broken: number, next: number): Promise<number> {
    const reads = (offset: number) =>
      bus.read(name, partition, offset, 1).then(
        found => found.length > 0,
        () => false,
      )
    let bad = broken
    let good = next
    for (let step = 1; broken + step < next; step *= 2) {
      if (await reads(broken + step)) {
        good = broken + step
        break
      }
      bad = broken + step
    }
    while (good - bad > 1) {
      const middle = (bad + good) >> 1
      if (await reads(middle)) good = middle
      else bad = middle
    }
    return good
  }

  return async function scanPartition(
    topic: TopicName,
    partition: number,
    from: number | undefined,
    give: Take,
    want?: Want,
    until = Number.POSITIVE_INFINITY,
  ): Promise<Place> {
    const name = topicOnBus(run, topic)
    const { oldest, next: end } = await bus.offsets(name, partition)
    const next = Math.min(end, until, (await lookEnd?.(topic, partition)) ?? end)
    let offset = Math.max(from ?? oldest, oldest)
    let atOnce = readAtOnce
    while (offset < next) {
      let records: readonly BusRecord[]
      try {
        records = await bus.read(name, partition, offset, Math.min(atOnce, next - offset))
        atOnce = readAtOnce
      } catch (thrown) {
        // The unreadable record may be anywhere in the batch, so the batch is halved and read again.
        if (atOnce > 1) {
          atOnce = Math.min(atOnce, next - offset) >> 1 || 1
          continue
        }
        const readable = await nextReadable(name, partition, offset, end)
        const through = readable - 1 > offset ? ` (through offset ${readable - 1})` : ''
        fault('unreadable', { topic, partition, offset }, `${asError(thrown).message}${through}`)
        offset = readable
        continue
      }
      const missing = (through: number) =>
        fault('gap', { topic, partition, offset }, `offsets ${offset} to ${through} are missing`)
      if (records.length === 0) {
        missing(next - 1)
        break
      }
      for (const record of records) {
        if (record.offset > offset) missing(record.offset - 1)
        offset = record.offset + 1
        if (record.offset >= next) break
        if (want === undefined || want(record.headers, record)) await take(record, topic, end, give)
      }
    }
    return { topic, partition, offset: Math.max(offset, next) }
  }
}
