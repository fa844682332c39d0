/**
 * Reads the lines of a byte stream in bounded memory.
 *
 * in   a readable stream of bytes
 * out  its lines without line ends, as text (see escapedText for invalid UTF-8); for a line that is too long, the
 * reason
 * Invariant: the reader buffers at most `maxBytes` of an unfinished line and one chunk, and reads nothing ahead of the
 * consumer; blank lines are skipped. A stream that is destroyed during reading ends normally, and its unfinished line
 * is dropped.
 */
import type { Readable } from 'node:stream'
import { escapedText } from '../../sandbox'

/** Line of the stream, with its length in bytes; or the reason why the line was too long to keep. */
export type Line = { readonly text: string; readonly bytes: number } | { readonly reason: string }

export async function* readLines(input: Readable, maxBytes: number): AsyncGenerator<Line> {
  try {
    yield* wholeLines(input, maxBytes)
  } catch (error) {
    if (!input.destroyed || (error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error
  }
}

async function* wholeLines(input: Readable, maxBytes: number): AsyncGenerator<Line> {
  let parts: Buffer[] = []
  let bytes = 0
  const take = (): Line | undefined => {
    const line =
      bytes > maxBytes
        ? { reason: `a line of ${bytes} bytes is over the limit of ${maxBytes}` }
        : { text: escapedText(Buffer.concat(parts)), bytes }
    parts = []
    bytes = 0
    return 'text' in line && line.text.trim() === '' ? undefined : line
  }
  const add = (part: Buffer) => {
    bytes += part.length
    if (bytes > maxBytes)
      parts = [] // the line is too long to keep: from here on only its length counts
    else if (part.length > 0) parts.push(part)
  }
  for await (const chunk of input) {
    const data = typeof chunk === 'string' ? Buffer.from(chunk) : (chunk as Buffer)
    let start = 0
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      add(data.subarray(start, end))
      start = end + 1
      const line = take()
      if (line) yield line
    }
    add(data.subarray(start))
  }
  const last = take()
  if (last) yield last
}
