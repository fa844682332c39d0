/**
 * Forms batches of records for produce requests: queues, bounds and encoding.
 *
 * in   waiting records, by partition      out  batches and requests of bounded size
 * Invariant: a batch keeps the order of the calls; it has at least one record, even one that is larger than the bound.
 */
import type { Message } from 'kafkajs'
import { TroupeError } from '../../errors'
import type { Position } from '../bus'
import type { PlacedRecord } from '../partitionedLog'

/**
 * Upper bound on the estimated bytes of one partition in a request; a larger single record is sent all the same. A
 * topic accepts batches up to 1,048,588 bytes by default.
 */
const batchBytes = 1_000_000
/** Upper bound on the estimated bytes of a request. */
const requestBytes = 8 * 1024 * 1024
/** Estimated bytes of a record besides its key, headers and value: lengths, offset and time. */
const recordOverhead = 24
/** Estimated bytes of a header besides its name and value: the two lengths. */
const headerOverhead = 8

/** One call of `append`: the positions of its records so far, and the callbacks that settle it. */
export interface Call {
  readonly positions: Position[]
  /** Number of the call's records without a position yet. */
  open: number
  readonly resolve: (positions: readonly Position[]) => void
  readonly reject: (error: Error) => void
}

/** One record of an `append` call, waiting to be sent. */
export interface Item {
  readonly call: Call
  readonly index: number
  readonly message: Message
  readonly bytes: number
}

/** The records of one partition that wait to be sent. */
export interface Queue {
  readonly topic: string
  readonly partition: number
  readonly waiting: Item[]
  /** True while a batch of the partition has been sent and is unanswered. */
  busy: boolean
  sentAt: number
}

/** The records of one partition in one produce request. */
export interface Batch {
  readonly queue: Queue
  readonly items: readonly Item[]
}

/** Removes records from the front of the queue: as many as fit a batch, at least one. */
export function takeBatch(waiting: Item[]): readonly Item[] {
  let bytes = 0
  let count = 0
  for (const item of waiting) {
    if (count > 0 && bytes + item.bytes > batchBytes) break
    bytes += item.bytes
    count++
  }
  return waiting.splice(0, count)
}

/** Distributes the batches for one broker over requests of bounded size, in their order; no batch is divided. */
export function requestsOf(batches: readonly Batch[]): readonly (readonly Batch[])[] {
  const requests: Batch[][] = []
  let bytes = Number.POSITIVE_INFINITY
  for (const batch of batches) {
    const size = batch.items.reduce((sum, item) => sum + item.bytes, 0)
    if (bytes + size > requestBytes) {
      requests.push([])
      bytes = 0
    }
    requests.at(-1)!.push(batch)
    bytes += size
  }
  return requests
}

/** Copies the record, since the caller may change its bytes before they are sent. */
export const messageOf = ({ key, headers, value, partition }: PlacedRecord): Message => ({
  key,
  partition,
  headers: { ...headers },
  value: Buffer.from(value),
})

export function sizeOf({ key, headers, value }: PlacedRecord): number {
  let bytes = recordOverhead + Buffer.byteLength(key) + value.length
  for (const name in headers) bytes += headerOverhead + Buffer.byteLength(name) + Buffer.byteLength(headers[name]!)
  return bytes
}

export const namesOf = (batches: readonly Batch[], nameOf: (topic: string) => string): string =>
  batches.map(({ queue }) => `${nameOf(queue.topic)}/${queue.partition}`).join(', ')

export function unanswered(batches: readonly Batch[], nameOf: (topic: string) => string): TroupeError {
  return new TroupeError('bus.append_unanswered', {
    boundary: 'bus',
    retriable: true,
    message: `no broker acknowledged the records for ${namesOf(batches, nameOf)}`,
    hint: 'the records may or may not have been appended: append them again under the same ids',
  })
}
