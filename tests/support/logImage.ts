/**
 * What a bus holds at one moment: a digest of every record of every topic, in its place.
 *
 * in   a bus        out  digests by topic and partition, and where another image is not its continuation
 */
import { createHash } from 'node:crypto'
import type { Bus } from '../../runtime/bus'

/** `topic/partition` → a digest a record, from the first on. */
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

/** Undefined where every record of `before` is in `after`, in its place; else the first that is not. */
export function notExtended(before: LogImage, after: LogImage): string | undefined {
  for (const [place, digests] of before) {
    const now = after.get(place) ?? []
    const at = digests.findIndex((digest, index) => now[index] !== digest)
    if (at >= 0) return `${place}: record ${at} of ${digests.length} is ${at < now.length ? 'another' : 'gone'}`
  }
  return undefined
}

export const recordsOf = (image: LogImage): number => [...image.values()].reduce((sum, { length }) => sum + length, 0)
