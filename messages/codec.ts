/**
 * The codec: encodes messages to records, decodes records to messages.
 *
 * in   a message and the run that it belongs to      out  topic, key, headers and value of a record
 * The value is msgpack; Int32 and Float32 arrays are little-endian bytes in it. The headers are text, so that any tool
 * that shows topics can filter by them.
 * Invariant: decode(encode(m)) equals m, and decode returns only messages: for any other record it throws MessageError.
 * Three values change, as msgpackr stores them: a lone surrogate becomes U+FFFD, an object key `__proto__` becomes
 * `__proto_`, -0 becomes 0.
 */
import { Packr } from 'msgpackr'
import { readerOf, writerOf } from './check'
import { type HeaderWriter, headersOf } from './headers'
import { groupOf, type RunId } from './ids'
import { MessageError } from './messageError'
import type { Fields } from './shape'
import { shapes } from './shapes'
import { type Message, routeOf, topicOnBus } from './topics'
import { type UpcastTable, upcast, upcasts, type Value } from './upcast'

/**
 * Upper bound on a record's value, in bytes, that every bus accepts. A larger message must put its large fields into
 * the blob store first.
 */
export const maxRecordBytes = 900 * 1024

export interface EncodeContext {
  readonly run: RunId
  /** W3C trace context of the work that the message is part of. */
  readonly traceparent?: string
  /**
   * Upper bound on the value, in bytes; default `maxRecordBytes`. A writer that puts large values into the blob store
   * passes Infinity.
   */
  readonly maxBytes?: number
}

/** A record in the form in which it is appended to a bus. */
export interface EncodedRecord {
  readonly key: string
  /** Name of the record's topic on the bus: `troupe.<run>.<topic>`. */
  readonly topic: string
  readonly headers: Readonly<Record<string, string>>
  readonly value: Uint8Array
}

/** Shapes and upcasts that records are decoded with. Tests of upcasts pass a schema of their own. */
export interface Schema {
  readonly shapes: Readonly<Record<string, { readonly version: number; readonly fields: Fields }>>
  readonly upcasts: UpcastTable
}

interface Entry {
  readonly version: number
  readonly versionText: string
  readonly read: (value: unknown) => unknown
  readonly write: (value: unknown) => unknown
  readonly headers: HeaderWriter
  /**
   * Name on the bus of the topic of this message type, cached for the latest run: a process usually writes to one run.
   */
  topic: { readonly run: RunId; readonly name: string } | undefined
}

const packr = new Packr({ useRecords: false })

/**
 * Encodes a message. @throws MessageError codec.unknown_type for an unknown type, codec.bad_shape when a field does not
 * fit the type, codec.too_large above `maxBytes`; RangeError for a trajectory id that is not `group/member`
 */
export function encode(message: Message, context: EncodeContext): EncodedRecord {
  const entry = own.get(message.type)
  if (!entry) throw new MessageError('codec.unknown_type', `unknown message type '${String(message.type)}'`)
  const value = packr.pack(entry.write(message))
  if (value.byteLength > (context.maxBytes ?? maxRecordBytes)) {
    const most = context.maxBytes ?? maxRecordBytes
    throw new MessageError('codec.too_large', `${message.type} has ${value.byteLength} bytes, expected at most ${most}`)
  }
  const { topic, key } = routeOf(message, context.run)
  const headers =
    message.type === 'turn.assign'
      ? entry.headers(context.run, message.ask, groupOf(message.ask.trajectory))
      : entry.headers(context.run, message, topic === 'trajectories' ? key : undefined)
  if (context.traceparent !== undefined) headers.traceparent = context.traceparent
  if (entry.topic?.run !== context.run) entry.topic = { run: context.run, name: topicOnBus(context.run, topic) }
  return { key, topic: entry.topic.name, headers, value }
}

/**
 * Decodes a record, under this code's shapes and upcasts unless `schema` is given.
 * @throws MessageError, and nothing else, for a record that holds no message of the schema
 */
export function decode(
  record: { readonly headers: Readonly<Record<string, string>>; readonly value: Uint8Array },
  schema?: Schema,
): Message {
  const { type, version: versionText } = record.headers
  if (type === undefined || versionText === undefined) {
    throw new MessageError(
      'codec.foreign',
      `the record has no ${type === undefined ? 'type' : 'version'} header: Troupe did not write it`,
    )
  }
  const entry = schema ? entriesOf(schema).get(type) : own.get(type)
  if (!entry) throw new MessageError('codec.unknown_type', `unknown message type '${type.slice(0, 80)}'`)

  let value: unknown
  try {
    value = packr.unpack(record.value)
  } catch (cause) {
    throw new MessageError(
      'codec.not_msgpack',
      `the value of a ${type} record cannot be unpacked: ${(cause as Error).message}`,
      '',
      { cause },
    )
  }
  if (versionText !== entry.versionText) {
    const version = /^[1-9]\d{0,8}$/.test(versionText) ? Number(versionText) : undefined
    if (version === undefined) {
      throw new MessageError(
        'codec.foreign',
        `the version header is '${versionText.slice(0, 80)}', expected a whole number from 1`,
      )
    }
    if (typeof value !== 'object' || value === null) {
      throw new MessageError('codec.bad_shape', `${type}: expected an object, found ${typeof value}`)
    }
    value = upcast(type, version, value as Value, entry.version, schema?.upcasts ?? upcasts)
  }
  return entry.read(value) as Message
}

function entriesOf(schema: Schema): ReadonlyMap<string, Entry> {
  return new Map(
    Object.entries(schema.shapes).map(([type, shape]) => [type, entryOf(type, shape.version, shape.fields)]),
  )
}

function entryOf(type: string, version: number, own: Fields): Entry {
  const fields: Fields = { type: { oneOf: { [type]: true } }, ...own }
  return {
    version,
    versionText: String(version),
    read: readerOf(type, fields),
    write: writerOf(type, fields),
    headers: headersOf(type, version, type === 'turn.assign' ? shapes['turn.generate'].fields : own),
    topic: undefined,
  }
}

const own = entriesOf({ shapes, upcasts })
