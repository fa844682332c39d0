/**
 * Reads each batch of an embedded log once for all consumers of this process that read from the same offset.
 *
 * in   a partition, an offset, bounds        out  the records there; the same array for each consumer that asks for it
 * Invariant: a batch is shared only while the partition's oldest and next offset are those of the batch's read, so a
 * consumer gets what a read of its own would give. Only the latest batch of each partition is kept.
 */
import { keyOf } from './assignment'
import type { BusRecord } from './bus'
import type { PartitionedLog } from './partitionedLog'

interface Batch {
  readonly offset: number
  readonly max: number
  readonly maxBytes: number
  /** Bounds of the partition at the read: after growth or retention, another read would give another batch. */
  readonly oldest: number
  readonly next: number
  readonly records: readonly BusRecord[]
}

export class SharedReads {
  private readonly latest = new Map<string, Batch>()

  constructor(private readonly log: Pick<PartitionedLog, 'read' | 'offsets'>) {}

  read(topic: string, partition: number, offset: number, max: number, maxBytes: number): readonly BusRecord[] {
    const { oldest, next } = this.log.offsets(topic, partition)
    // The last read of a delivery usually finds nothing: this check answers it without a search in the log.
    if (offset === next) return []
    const key = keyOf(topic, partition)
    const known = this.latest.get(key)
    const isSame = known?.offset === offset && known.max === max && known.maxBytes === maxBytes
    if (isSame && known.next === next && known.oldest === oldest) return known.records
    const records = this.log.read(topic, partition, offset, max, maxBytes)
    this.latest.set(key, { offset, max, maxBytes, oldest, next, records })
    return records
  }
}
