/**
 * Where a look at the past ends: of the partition of `--at` behind its record, of others before the first that was written later.
 *
 * in   a place, and when its record was written        out  for each partition an offset, exclusive
 * Invariant: every reader of one look is given the same ends. They are found by halves, since records of a partition follow one
 * another in time, in as many reads as the logarithm of its length.
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

async function firstAfter(bus: Bus, name: string, partition: number, timestamp: number): Promise<number> {
  let { oldest: low, next: high } = await bus.offsets(name, partition)
  while (low < high) {
    const middle = (low + high) >>> 1
    const found = await readableFrom(bus, name, partition, middle, high)
    if (found === undefined || found.timestamp > timestamp) high = middle
    else low = found.offset + 1
  }
  return high
}

/** The first record from `offset` on that the bus gives; undefined where there is none before `end`. */
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
