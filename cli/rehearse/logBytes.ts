/**
 * Counts what a run writes to its bus: records and bytes by topic.
 *
 * in   a bus        out  the same bus; the counts
 * Invariant: keys, headers and values are counted as they are appended. What a driver adds (lmdb's pages, Kafka's
 * batches) is not counted; `bytesUnder` measures the files on disk.
 */
import { lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Bus } from '../../runtime/bus/bus'

export interface TopicBytes {
  readonly topic: string
  readonly records: number
  readonly bytes: number
}

export function countedBus(bus: Bus): { readonly bus: Bus; counts(): readonly TopicBytes[] } {
  const topics = new Map<string, { records: number; bytes: number }>()
  const counted: Bus = {
    kind: bus.kind,
    createTopics: configs => bus.createTopics(configs),
    listTopics: () => bus.listTopics(),
    append(records) {
      for (const { topic, key, headers, value } of records) {
        const sum = topics.get(topic) ?? { records: 0, bytes: 0 }
        sum.records++
        sum.bytes += key.length + value.byteLength
        for (const [name, text] of Object.entries(headers)) sum.bytes += name.length + text.length
        topics.set(topic, sum)
      }
      return bus.append(records)
    },
    read: (topic, partition, offset, max) => bus.read(topic, partition, offset, max),
    offsets: (topic, partition) => bus.offsets(topic, partition),
    committed: (group, topic, partition) => bus.committed(group, topic, partition),
    subscribe: (options, handler) => bus.subscribe(options, handler),
    close: () => bus.close(),
  }
  return {
    bus: counted,
    counts: () =>
      [...topics]
        .map(([topic, sum]) => ({ topic: topic.split('.').at(-1)!, ...sum }))
        .sort((a, b) => b.bytes - a.bytes),
  }
}

/** Bytes of all files below a directory. */
export function bytesUnder(directory: string): number {
  let bytes = 0
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name)
    bytes += entry.isDirectory() ? bytesUnder(path) : (lstatSync(path, { throwIfNoEntry: false })?.size ?? 0)
  }
  return bytes
}
