/**
 * Argument checks that all drivers share: topic settings, sizes of records, names of groups.
 *
 * in   arguments of a call      out  nothing, or a TroupeError
 * Invariant: pure functions; a call that is refused here has changed nothing.
 */
import type { NewRecord, TopicConfig } from './bus'
import { busErrors, maxRecordBytes } from './busErrors'

const maxPartitions = 65_536
const maxHeaders = 255

/**
 * Checks a record to append. @throws TroupeError bus.record_too_large; bus.record_invalid when it has more than 255
 * headers
 */
export function checkRecord(record: NewRecord): void {
  let characters = record.key.length
  let headers = 0
  for (const name in record.headers) {
    characters += name.length + record.headers[name]!.length
    headers++
  }
  if (headers > maxHeaders) {
    throw busErrors.recordInvalid(record.topic, `it has ${headers} headers, expected at most ${maxHeaders}`)
  }
  // A UTF-16 unit has at most three bytes of UTF-8, so only records near the limit need exact measuring.
  if (record.value.length + 3 * characters <= maxRecordBytes) return
  let bytes = record.value.length + Buffer.byteLength(record.key)
  for (const [name, value] of Object.entries(record.headers))
    bytes += Buffer.byteLength(name) + Buffer.byteLength(value)
  if (bytes > maxRecordBytes) throw busErrors.recordTooLarge(record.topic, bytes)
}

/** Checks the name, partition count and retention of a topic. @throws TroupeError bus.topic_invalid */
export function checkTopicConfig({ topic, partitions, retentionMs }: TopicConfig): void {
  if (!/^[A-Za-z0-9._-]{1,249}$/.test(topic)) {
    throw busErrors.topicInvalid(topic, 'expected a name of 1 to 249 letters, digits, dots, dashes or underscores')
  }
  if (!Number.isInteger(partitions) || partitions < 1 || partitions > maxPartitions) {
    throw busErrors.topicInvalid(topic, `${partitions} partitions, expected 1 to ${maxPartitions}`)
  }
  if (retentionMs !== null && !(retentionMs >= 0)) {
    throw busErrors.topicInvalid(topic, `a retention of ${retentionMs} ms, expected 0 or more, or null`)
  }
}

/** Checks the length of a consumer group's name. @throws TroupeError bus.group_invalid */
export function checkGroup(group: string): void {
  if (group.length < 1 || group.length > 249) throw busErrors.groupInvalid(group)
}
