/**
 * Errors that several drivers report: a constructor for each, so that every driver reports a fault in the same words.
 */
import { TroupeError } from '../errors'

/**
 * Upper bound on a record's key, headers and value together, in bytes. Kafka's default limit is 1 MiB; this bound
 * leaves room for framing.
 */
export const maxRecordBytes = 900 * 1024

const holds = (oldest: number, next: number): string =>
  next > oldest ? `has offsets ${oldest} to ${next - 1}` : `is empty and ends at offset ${next}`

export const busErrors = {
  topicUnknown: (topic: string): TroupeError =>
    new TroupeError('bus.topic_unknown', {
      boundary: 'bus',
      retriable: false,
      message: `the bus has no topic ${topic}`,
      hint: 'check the name, troupe.<run>.<topic>, or create the topic with createTopics',
    }),

  partitionUnknown: (topic: string, partition: number, partitions: number): TroupeError =>
    new TroupeError('bus.partition_unknown', {
      boundary: 'bus',
      retriable: false,
      message: `topic ${topic} has no partition ${partition}, expected 0 to ${partitions - 1}`,
    }),

  topicMismatch: (topic: string, has: number, asked: number): TroupeError =>
    new TroupeError('bus.topic_mismatch', {
      boundary: 'bus',
      retriable: false,
      message: `topic ${topic} has ${has} partitions (or gets them in the same createTopics call), expected ${asked}`,
      hint: `Troupe does not change the partition count of a topic: use ${has} partitions, or start a new run`,
    }),

  topicInvalid: (topic: string, why: string): TroupeError =>
    new TroupeError('bus.topic_invalid', {
      boundary: 'bus',
      retriable: false,
      message: `topic ${JSON.stringify(topic)} cannot be created: ${why}`,
    }),

  recordTooLarge: (topic: string, bytes: number): TroupeError =>
    new TroupeError('bus.record_too_large', {
      boundary: 'bus',
      retriable: false,
      message: `a record for topic ${topic} has ${bytes} bytes, expected at most ${maxRecordBytes}`,
      hint: 'put large fields into the blob store and refer to them by digest',
    }),

  recordInvalid: (topic: string, why: string): TroupeError =>
    new TroupeError('bus.record_invalid', {
      boundary: 'bus',
      retriable: false,
      message: `a record for topic ${topic} is refused: ${why}`,
    }),

  groupInvalid: (group: string): TroupeError =>
    new TroupeError('bus.group_invalid', {
      boundary: 'bus',
      retriable: false,
      message: `the consumer group ${JSON.stringify(group)} is refused: expected a name of 1 to 249 characters`,
    }),

  offsetOutOfRange: (topic: string, partition: number, offset: number, oldest: number, next: number): TroupeError =>
    new TroupeError('bus.offset_out_of_range', {
      boundary: 'bus',
      retriable: false,
      message: `${topic}/${partition} ${holds(oldest, next)}, so offset ${offset} is out of range`,
      hint:
        !Number.isInteger(offset) || offset < 0
          ? 'give a whole number from 0'
          : offset > next
            ? 'check the offset; if a group had reached it, the log was truncated or created anew since: start a new run, or on Kafka reset the offset of the group (kafka-consumer-groups.sh --reset-offsets)'
            : 'begin at the oldest offset: records of command topics are dropped after their retention',
    }),

  notOwned: (group: string, topic: string, partition: number): TroupeError =>
    new TroupeError('bus.partition_not_owned', {
      boundary: 'bus',
      retriable: false,
      message: `this member of group ${group} cannot commit an offset of ${topic}/${partition}: it does not own the partition (any more)`,
    }),

  handlerFailed: (topic: string, partition: number, cause: Error): TroupeError =>
    new TroupeError('bus.handler_failed', {
      boundary: 'bus',
      retriable: false,
      message: `delivering ${topic}/${partition} to its consumer failed: ${cause.message}`,
      cause,
    }),

  readOnly: (): TroupeError =>
    new TroupeError('bus.read_only', {
      boundary: 'bus',
      retriable: false,
      message: 'this bus was opened for reading: it cannot append or create topics',
    }),

  closed: (): TroupeError =>
    new TroupeError('bus.closed', { boundary: 'bus', retriable: false, message: 'the bus is closed' }),

  overloaded: (waitingBytes: number): TroupeError =>
    new TroupeError('bus.overloaded', {
      boundary: 'bus',
      retriable: true,
      message: `the bus accepts no more records for now: ${waitingBytes} bytes wait to be written`,
      hint: 'await the append calls before appending more',
    }),
} as const
