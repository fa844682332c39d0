/**
 * Takes an image of a bus: the digest of every record of every topic, so that a test can check that records only were
 * added.
 *
 * in   a bus
 * out  digests by topic and partition; the first record in which a later image does not continue an earlier
 */
import { createHash } from 'node:crypto'
import type { Bus } from '../../runtime/bus'

/** Digests of the records by `topic/partition`, from the oldest record on. */
export type LogImage = ReadonlyMap<string, readonly string[]>

export async function logImage(bus: Pick<Bus, 'listTopics' | 'offsets' | 'read'>): Promise<LogImage> {
  const image = new Map<string, string[]>()
  for (const { topic, partitions } of await bus.listTopics()) {
    for (let partition = 0; partition < partitions; partition++) {
      const digests: string[] = []
      const { oldest, next } = await bus.offsets(topic, partition)
      for (let at = oldest; at < next; ) {
        const records = await bus.read(topic, partition, at, 1000)
        for (const { offset, key, headers, value } of records) {
          const sorted = Object.entries(headers).sort()
          digests.push(
            createHash('sha256')
              .update(JSON.stringify([offset, key, sorted]))
              .update(value)
              .digest('hex'),
          )
        }
        at = records.length === 0 ? next : records.at(-1)!.offset + 1
      }
      image.set(`${topic}/${partition}`, digests)
    }
  }
  return image
}

/** Returns the first record of `before` that `after` lacks or has changed; undefined if there is none. */
export function notExtended(before: LogImage, after: LogImage): string | undefined {
  for (const [place, digests] of before) {
    const now = after.get(place) ?? []
    const at = digests.findIndex((digest, index) => now[index] !== digest)
    if (at >= 0) return `${place}: record ${at} of ${digests.length} is ${at < now.length ? 'another' : 'gone'}`
  }
  return undefined
}

export const recordsOf = (image: LogImage): number => [...image.values()].reduce((sum, { length }) => sum + length, 0)
