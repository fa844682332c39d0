/**
 * Shortens captured output for an answer: its first or last characters, counted as Python counts them.
 *
 * in   bytes of a stream      out  its first or last characters, or all; bytes that are not UTF-8 become U+FFFD
 * Invariant: no character is cut in two, and the text does not keep the stream's bytes in memory.
 */
const MAX_UTF8 = 4

/** Returns the first `chars` characters of a stream, as Code Judge keeps them of stdout. */
export function headText(bytes: Uint8Array, chars: number): string {
  const text = decoded(bytes.subarray(0, MAX_UTF8 * chars))
  // A text never has more characters than UTF-16 units, so a short text needs no counting.
  return text.length <= chars ? text : [...text].slice(0, chars).join('')
}

/** Returns the last `chars` characters of a stream, for stderr: a traceback ends with the error. */
export function tailText(bytes: Uint8Array, chars: number): string {
  if (chars === 0) return ''
  let start = Math.max(0, bytes.length - MAX_UTF8 * chars)
  // Leaves out a character that begins before the window, up to its last byte.
  for (let skipped = 0; start > 0 && skipped < MAX_UTF8 - 1 && isContinuation(bytes[start]!); skipped++) start++
  const text = decoded(bytes.subarray(start))
  return text.length <= chars ? text : [...text].slice(-chars).join('')
}

/** Returns all bytes of a stream as text. */
export function decoded(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
}

const isContinuation = (byte: number) => (byte & 0xc0) === 0x80
