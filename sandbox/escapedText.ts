/**
 * A body's bytes as text, where bytes that are no UTF-8 stand as lone surrogates (U+DC80 to U+DCFF, as in Python's
 * `surrogateescape`): JSON can still be parsed, and exactly the strings that held such bytes can be told from the rest.
 */
import { isUtf8 } from 'node:buffer'

export function escapedText(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString('utf8')
  const parts: string[] = []
  let valid = 0
  for (let at = 0; at < bytes.length; ) {
    const length = sequenceAt(bytes, at)
    if (length > 0) {
      at += length
      continue
    }
    parts.push(bytes.toString('utf8', valid, at), String.fromCharCode(0xdc00 + bytes[at]!))
    valid = ++at
  }
  parts.push(bytes.toString('utf8', valid))
  return parts.join('')
}

/** What of a text is no Unicode, in words: a byte that was no UTF-8, or half of a surrogate pair. Undefined where all is. */
export function notUnicode(text: string): string | undefined {
  const index = text.search(/\p{Surrogate}/u)
  if (index < 0) return undefined
  const code = text.charCodeAt(index)
  const half = `half of a surrogate pair, U+${code.toString(16).toUpperCase()}`
  const byte = code >= 0xdc80 && code <= 0xdcff ? `the byte 0x${(code - 0xdc00).toString(16)} or ` : ''
  return `at character ${index} it has ${byte}${half}`
}

/** Length of the well-formed UTF-8 sequence at `at` (RFC 3629 §4), or 0. */
function sequenceAt(bytes: Buffer, at: number): number {
  const first = bytes[at]!
  if (first < 0x80) return 1
  const length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0
  return length > 0 && isUtf8(bytes.subarray(at, at + length)) && at + length <= bytes.length ? length : 0
}
