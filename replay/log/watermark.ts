/**
 * Computes the end offset of every partition for `--at`: in the partition of `--at` the offset after its record, in the
 * other partitions the offset of the first record that was written later.
 *
 * in   a position, and when its record was written        out  for each partition an offset, exclusive
 * Invariant: all reads of one opened run use the same ends: each is computed once. Binary search finds it, so the
 * bus's times must ascend within a partition. The search takes a number of reads logarithmic in the partition's length,
 * and one more for each unreadable record that it meets.
 */
import type { RunId } from '../../messages/ids'
import { type TopicName, topicOnBus } from '../../messages/topics'
import type { Bus, BusRecord } from '../../runtime/bus/bus'
import type { Place } from './place'

export type Watermark = (topic: TopicName, partition: number) => Promise<number>

export function watermarkAt(bus: Bus, run: RunId, at: Place, timestamp: number): Watermark {
  const known = new Map<string, Promise<number>>()
  return (topic, partition) => {
    if (topic === at.topic && partition === at.partition) return Promise.resolve(at.offset + 1)
    const name = topicOnBus(run, topic)
    const key = `${name}#${partition}`
    const end = known.get(key) ?? firstAfter(bus, name, partition, timestamp)
    known.set(key, end)
    return end
  }
}

/** Returns the offset of the partition's first record that was written after `timestamp`; its end if none was. */
export async function firstAfter(bus: Bus, name: string, partition: number, timestamp: number): Promise<number> {
  let { oldest: low, next: high } = await bus.offsets(name, partition)
  while (low < high) {
    const middle = (low + high) >>> 1
    const found = await readableFrom(bus, name, partition, middle, high)
    if (found === undefined || found.timestamp > timestamp) high = middle
    else low = found.offset + 1
  }
  return high
}

/** Returns the first readable record from `offset` on; undefined when none before `end` is readable. */
async function readableFrom(
  bus: Bus,
  name: string,
  partition: number,
  offset: number,
  end: number,
): Promise<BusRecord | undefined> {
  for (let at = offset; at < end; at++) {
    const [record] = await bus.read(name, partition, at, 1).catch((): readonly BusRecord[] => [])
    if (record !== undefined) return record.offset < end ? record : undefined
  }
  return undefined
}
