/**
 * Decodes bytes that should be UTF-8. Each byte that is not UTF-8 becomes a lone surrogate (U+DC80 to U+DCFF, as in
 * Python's `surrogateescape`), so that JSON around it can still be parsed, and `notUnicode` finds the strings that hold
 * such bytes.
 */
import { isUtf8 } from 'node:buffer'

export function escapedText(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString('utf8')
  // The result is written into one buffer: a string for each bad byte of a long body would exhaust memory.
  const units = Buffer.allocUnsafe(2 * bytes.length)
  let length = 0
  const write = (unit: number) => {
    units[length++] = unit & 0xff
    units[length++] = unit >> 8
  }
  for (let at = 0, size = 0; at < bytes.length; at += size || 1) {
    size = sequenceAt(bytes, at)
    if (size < 2) write(size === 1 ? bytes[at]! : 0xdc00 + bytes[at]!)
    else {
      let code = bytes[at]! & (0x7f >> size)
      for (let n = 1; n < size; n++) code = (code << 6) | (bytes[at + n]! & 0x3f)
      if (size < 4) write(code)
      else {
        write(0xd7c0 + (code >> 10))
        write(0xdc00 + (code & 0x3ff))
      }
    }
  }
  return units.toString('utf16le', 0, length)
}

/**
 * Describes the first character of a text that is not Unicode: a byte that was not UTF-8, or half of a surrogate pair.
 * Returns undefined if there is none.
 */
export function notUnicode(text: string): string | undefined {
  const index = text.search(/\p{Surrogate}/u)
  if (index < 0) return undefined
  const code = text.charCodeAt(index)
  const half = `half of a surrogate pair, U+${code.toString(16).toUpperCase()}`
  const byte = code >= 0xdc80 && code <= 0xdcff ? `the byte 0x${(code - 0xdc00).toString(16)} or ` : ''
  return `at character ${index} it has ${byte}${half}`
}

/** Returns the length of the well-formed UTF-8 sequence that begins at `at` (RFC 3629 §4); 0 if none begins there. */
function sequenceAt(bytes: Buffer, at: number): number {
  const first = bytes[at]!
  if (first < 0x80) return 1
  if (first < 0xc2 || first > 0xf4) return 0
  const length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4
  if (at + length > bytes.length) return 0
  const second = bytes[at + 1]!
  // The second byte's bounds exclude overlong forms, surrogates, and code points beyond U+10FFFF.
  const least = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80
  const most = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf
  if (second < least || second > most) return 0
  for (let n = 2; n < length; n++) if ((bytes[at + n]! & 0xc0) !== 0x80) return 0
  return length
}
