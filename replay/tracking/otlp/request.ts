/**
 * Encodes spans as the body of an OTLP/HTTP request: `ExportTraceServiceRequest` of opentelemetry/proto/trace/v1,
 * protobuf.
 */
import { bytes, double, field, fixed64, message, text, varint } from '../protobuf'
import { type Attribute, type Span, schemaUrl } from './spans'

const kinds = { internal: 1, client: 3 } as const
const statusError = 2

export function traceRequest(
  spans: readonly Span[],
  resource: Readonly<Record<string, string>>,
  version: string,
): Buffer {
  const scope = message(1, text(1, 'troupe'), text(2, version))
  const scoped = message(2, scope, ...spans.map(span => message(2, ...spanFields(span))), text(3, schemaUrl))
  return message(1, message(1, ...attributes(1, resource)), scoped, text(3, schemaUrl))
}

const spanFields = ({ trace, id, parent, name, kind, startedAt, endedAt, attributes: own, error }: Span) => [
  bytes(1, trace),
  bytes(2, id),
  ...(parent === undefined ? [] : [bytes(4, parent)]),
  text(5, name),
  field(6, 0, varint(kinds[kind])),
  field(7, 1, fixed64(nanoseconds(startedAt))),
  field(8, 1, fixed64(nanoseconds(Math.max(startedAt, endedAt)))),
  ...attributes(9, own),
  ...(error === undefined ? [] : [message(15, text(2, error), field(3, 0, varint(statusError)))]),
]

const attributes = (number: number, values: Readonly<Record<string, Attribute | undefined>>): Buffer[] =>
  Object.entries(values).flatMap(([key, value]) =>
    value === undefined ? [] : [message(number, text(1, key), message(2, anyValue(value)))],
  )

function anyValue(value: Attribute): Buffer {
  if (typeof value === 'string') return text(1, value)
  if (typeof value === 'boolean') return field(2, 0, varint(value ? 1 : 0))
  if (typeof value === 'number')
    return Number.isSafeInteger(value) && value >= 0 ? field(3, 0, varint(value)) : field(4, 1, double(value))
  return message(5, ...value.map(one => message(1, text(1, one))))
}

/** Converts ms since 1970 to ns, rounded to whole µs: a double holds µs of such times, not ns. */
const nanoseconds = (ms: number): bigint => BigInt(Math.round(ms * 1000)) * 1000n
