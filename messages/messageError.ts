/**
 * What is wrong with a record or a message, so that a consumer can put it aside and a person can find the cause.
 * Invariant: the codec throws nothing else, whatever bytes it is given.
 */
export type MessageErrorCode =
  /** The record has no type or version header: not written by this codec. */
  | 'codec.foreign'
  /** Its type is not one of ours. */
  | 'codec.unknown_type'
  /** It was written under a schema version that this code does not know. */
  | 'codec.newer_version'
  /** Its value cannot be unpacked. */
  | 'codec.not_msgpack'
  /** Its value unpacks, but to something else than its type promises. */
  | 'codec.bad_shape'
  /** It is over the size that every bus carries. */
  | 'codec.too_large'

export class MessageError extends Error {
  override readonly name = 'MessageError'

  constructor(
    readonly code: MessageErrorCode,
    message: string,
    /** The field, as a path from the message: `segments.0.start`; empty when it is about the whole record. */
    readonly where = '',
    options?: { readonly cause: unknown },
  ) {
    super(message, options)
  }
}
