/**
 * Keeps the end of what a child process writes, for the error that reports how it ended.
 *
 * in   streams of the process        out  their last characters; each piece of whole lines, as they come
 * Invariant: no known secret is among them, though the process wrote it in two chunks, or the beginning was cut off: a
 * stream's text is processed in whole lines, and redacted before it is cut. A line longer than `mostHeld` is processed
 * in pieces that overlap no secret.
 */
import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { redactSecrets } from './knownSecrets'

/** Length of an unfinished line, in characters, above which its beginning is processed without waiting for its end. */
const mostHeld = 65_536
/** Characters at the end of such a long unfinished line that still wait, since a secret may begin in them. */
const overlap = 4096

export interface OutputTailOptions {
  /** Upper bound on the characters that are kept. */
  readonly chars: number
  /** Called with each piece of one or more whole lines, with their line ends. */
  readonly onLines?: ((text: string) => void) | undefined
}

/**
 * Reads the streams to their ends. Returns a function that gives the end of what they have written so far, without
 * white space at its end.
 */
export function outputTail(
  streams: readonly (Readable | null | undefined)[],
  { chars, onLines }: OutputTailOptions,
): () => string {
  let tail = ''
  const held = new Map<Readable, string>()
  const take = (text: string) => {
    const shown = redactSecrets(text)
    tail = endOf(tail + shown, chars)
    onLines?.(shown)
  }
  for (const stream of streams) {
    if (stream === null || stream === undefined) continue
    const decoder = new StringDecoder('utf8')
    stream.on('data', (chunk: Buffer | string) => {
      const all = (held.get(stream) ?? '') + (typeof chunk === 'string' ? chunk : decoder.write(chunk))
      const lineEnd = all.lastIndexOf('\n') + 1
      const isLong = all.length - lineEnd > mostHeld
      // A secret and [redacted] differ in length, so the text is redacted before it is cut.
      const whole = isLong ? redactSecrets(all) : all
      const end = isLong ? whole.length - overlap : lineEnd
      held.set(stream, whole.slice(end))
      if (end > 0) take(whole.slice(0, end))
    })
    stream.once('end', () => {
      const rest = held.get(stream) ?? ''
      held.delete(stream)
      if (rest !== '') take(rest)
    })
  }
  return () => endOf([tail, ...[...held.values()].map(text => redactSecrets(text))].join(''), chars).trimEnd()
}

const endOf = (text: string, chars: number): string => text.slice(Math.max(0, text.length - chars))
