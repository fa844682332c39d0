/**
 * MessageError: the fault of a record or a message. A consumer decides by `code` what to do with the record; a person
 * finds the cause by `where`.
 * Invariant: `decode` throws nothing else, whatever bytes it is given.
 */
export type MessageErrorCode =
  /** The record has no type or no valid version header: this codec did not write it. */
  | 'codec.foreign'
  /** No message type has this name: the one in a record's header, or that of a message to encode. */
  | 'codec.unknown_type'
  /** The record was written under a schema version newer than this code's. */
  | 'codec.newer_version'
  /** The record's value is not valid msgpack. */
  | 'codec.not_msgpack'
  /**
   * The value lacks a field of its type, or a field has another kind; or an upcast of the value is missing or failed.
   */
  | 'codec.bad_shape'
  /** The packed value is larger than the writer's `maxBytes`; by default, than every bus accepts (`maxRecordBytes`). */
  | 'codec.too_large'

export class MessageError extends Error {
  override readonly name = 'MessageError'

  constructor(
    readonly code: MessageErrorCode,
    message: string,
    /** Path of the field in the message: `segments.0.start`; empty when the fault concerns the whole record. */
    readonly where = '',
    options?: { readonly cause: unknown },
  ) {
    super(message, options)
  }
}
