/**
 * The errors of the bus, one constructor a code, so that every driver says the same thing in the same words.
 */
import { TroupeError } from '../errors'

/** Most bytes of key, headers and value of one record. Kafka's default limit is 1 MiB; this leaves room for framing. */
export const maxRecordBytes = 900 * 1024

const holds = (oldest: number, next: number): string =>
  next > oldest ? `holds offsets ${oldest} to ${next - 1}` : `holds nothing, and its end is at offset ${next}`

export const busErrors = {
  topicUnknown: (topic: string): TroupeError =>
    new TroupeError('bus.topic_unknown', {
      boundary: 'bus',
      retriable: false,
      message: `there is no topic ${topic}`,
      hint: 'create it with createTopics; names carry the run: troupe.<run>.<topic>',
    }),

  partitionUnknown: (topic: string, partition: number, partitions: number): TroupeError =>
    new TroupeError('bus.partition_unknown', {
      boundary: 'bus',
      retriable: false,
      message: `topic ${topic} has partitions 0 to ${partitions - 1}, not ${partition}`,
    }),

  topicMismatch: (topic: string, has: number, asked: number): TroupeError =>
    new TroupeError('bus.topic_mismatch', {
      boundary: 'bus',
      retriable: false,
      message: `topic ${topic} has ${has} partitions, ${asked} were asked for`,
      hint: 'the partition count of a topic never changes; use a new run or the count it has',
    }),

  topicInvalid: (topic: string, why: string): TroupeError =>
    new TroupeError('bus.topic_invalid', {
      boundary: 'bus',
      retriable: false,
      message: `topic ${JSON.stringify(topic)}: ${why}`,
    }),

  recordTooLarge: (topic: string, bytes: number): TroupeError =>
    new TroupeError('bus.record_too_large', {
      boundary: 'bus',
      retriable: false,
      message: `a record of ${bytes} bytes for topic ${topic}; at most ${maxRecordBytes} are taken`,
      hint: 'put large fields into the blob store and refer to them by digest',
    }),

  recordInvalid: (topic: string, why: string): TroupeError =>
    new TroupeError('bus.record_invalid', {
      boundary: 'bus',
      retriable: false,
      message: `a record for topic ${topic}: ${why}`,
    }),

  groupInvalid: (group: string): TroupeError =>
    new TroupeError('bus.group_invalid', {
      boundary: 'bus',
      retriable: false,
      message: `group ${JSON.stringify(group)}: a name has 1 to 249 characters`,
    }),

  offsetOutOfRange: (topic: string, partition: number, offset: number, oldest: number, next: number): TroupeError =>
    new TroupeError('bus.offset_out_of_range', {
      boundary: 'bus',
      retriable: false,
      message: `${topic}/${partition} ${holds(oldest, next)}; ${offset} was asked for`,
      hint:
        offset > next
          ? 'the log was cut short or made anew since that offset was known: start a new run, or set the offset of the group with kafka-consumer-groups.sh --reset-offsets'
          : 'records of command topics are dropped after their retention; begin at the oldest offset',
    }),

  notOwned: (group: string, topic: string, partition: number): TroupeError =>
    new TroupeError('bus.partition_not_owned', {
      boundary: 'bus',
      retriable: false,
      message: `this member of group ${group} does not own ${topic}/${partition}, so it cannot commit there`,
    }),

  handlerFailed: (topic: string, partition: number, cause: Error): TroupeError =>
    new TroupeError('bus.handler_failed', {
      boundary: 'bus',
      retriable: false,
      message: `the consumer of ${topic}/${partition} threw: ${cause.message}`,
      cause,
    }),

  readOnly: (): TroupeError =>
    new TroupeError('bus.read_only', {
      boundary: 'bus',
      retriable: false,
      message: 'this bus was opened to read: it appends nothing and makes no topics',
    }),

  closed: (): TroupeError =>
    new TroupeError('bus.closed', { boundary: 'bus', retriable: false, message: 'this bus has been closed' }),

  overloaded: (waitingBytes: number): TroupeError =>
    new TroupeError('bus.overloaded', {
      boundary: 'bus',
      retriable: true,
      message: `${waitingBytes} bytes already wait to be written`,
      hint: 'await append before appending more',
    }),
} as const
