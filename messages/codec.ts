/**
 * The codec: messages to records and back.
 *
 * in   a message and the run it belongs to           out  key, topic, headers and value of a record (DESIGN §4)
 * The value is msgpack with Int32 and Float32 arrays as little-endian bytes; the headers are text, so that any tool that
 * shows topics can filter by them.
 * Invariant: decode(encode(m)) equals m, and decode returns nothing that is not a message: it throws MessageError.
 * Three things are stored as msgpackr has them: a lone surrogate as U+FFFD, an object key `__proto__` as `__proto_`, -0
 * as 0.
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

/** What every bus carries; a message over it must put its large fields elsewhere first. */
export const maxRecordBytes = 900 * 1024

export interface EncodeContext {
  readonly run: RunId
  /** W3C trace context of the work that the message belongs to. */
  readonly traceparent?: string
  /** Largest value; default `maxRecordBytes`. A writer that puts large values elsewhere passes Infinity. */
  readonly maxBytes?: number
}

/** A record as a bus appends it. */
export interface EncodedRecord {
  readonly key: string
  /** The topic's name on the bus: `troupe.<run>.<topic>`. */
  readonly topic: string
  readonly headers: Readonly<Record<string, string>>
  readonly value: Uint8Array
}

/** Schemas that records are read under; others than ours are for tests of the mechanism. */
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
  /** The topic's name on the bus, for the run that was last written to: a process writes to one, as a rule. */
  topic: { readonly run: RunId; readonly name: string } | undefined
}

const packr = new Packr({ useRecords: false })

/** Throws MessageError `codec.bad_shape` for a message that its type does not allow, `codec.too_large` above the limit. */
export function encode(message: Message, context: EncodeContext): EncodedRecord {
  const entry = own.get(message.type)
  if (!entry) throw new MessageError('codec.unknown_type', `no message has the type '${String(message.type)}'`)
  const value = packr.pack(entry.write(message))
  if (value.byteLength > (context.maxBytes ?? maxRecordBytes)) {
    throw new MessageError('codec.too_large', `${message.type} has ${value.byteLength} bytes, over ${maxRecordBytes}`)
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

/** The message of a record. Throws MessageError, whatever the record holds. */
export function decode(
  record: { readonly headers: Readonly<Record<string, string>>; readonly value: Uint8Array },
  schema?: Schema,
): Message {
  const { type, version: versionText } = record.headers
  if (type === undefined || versionText === undefined) {
    throw new MessageError('codec.foreign', `the record has no ${type === undefined ? 'type' : 'version'} header`)
  }
  const entry = schema ? entriesOf(schema).get(type) : own.get(type)
  if (!entry) throw new MessageError('codec.unknown_type', `no message has the type '${type.slice(0, 80)}'`)

  let value: unknown
  try {
    value = packr.unpack(record.value)
  } catch (cause) {
    throw new MessageError('codec.not_msgpack', `the value of a ${type} record cannot be unpacked`, '', { cause })
  }
  if (versionText !== entry.versionText) {
    const version = /^[1-9]\d{0,8}$/.test(versionText) ? Number(versionText) : undefined
    if (version === undefined) {
      throw new MessageError('codec.foreign', `'${versionText.slice(0, 80)}' is no schema version`)
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
