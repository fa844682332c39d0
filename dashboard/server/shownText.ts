/**
 * Prepares text that a model, a tool or a task wrote for the page: escaped, and cut.
 *
 * in   any text        out  text without control and direction characters, of bounded length; how much was left out
 * Invariant: the page sets the result as text nodes, so markup in it stays text; here only characters that change how
 * text nodes are drawn are escaped.
 */
import { escapeForTerminal } from '../../runtime/escapeForTerminal'
import type { ShownText } from '../api'

/** Upper bounds, before escaping, on the characters that are kept of a text and of each of its lines. */
export const mostCharacters = 65_536
export const mostOfLine = 4096

export function shownText(text: string, most = mostCharacters): ShownText {
  const kept = text.length <= most ? text : withoutHalfPair(text.slice(0, most))
  return { text: escapeForTerminal(cutLines(kept)), cut: text.length - kept.length }
}

/** Shortens text to one line, for lists. */
export function shownLine(text: string, most = 200): string {
  const line = escapeForTerminal(text.slice(0, most * 2))
    .replace(/\s+/g, ' ')
    .trim()
  return line.length > most ? `${line.slice(0, most - 1)}…` : line
}

function cutLines(text: string): string {
  if (text.length <= mostOfLine) return text
  return text
    .split('\n')
    .map(line => {
      if (line.length <= mostOfLine) return line
      const kept = withoutHalfPair(line.slice(0, mostOfLine))
      return `${kept} … [${line.length - kept.length} more characters of this line]`
    })
    .join('\n')
}

/** Drops half of a surrogate pair at the end, which would be drawn as a broken character. */
const withoutHalfPair = (text: string): string => (/[\ud800-\udbff]$/.test(text) ? text.slice(0, -1) : text)

/** Upper bound on the elements of an array in a raw event. */
const mostElements = 64

/** Writes a message as JSON for people: typed arrays as lists, long lists cut with a note. */
export function shownJson(value: unknown, most = 16_384): ShownText {
  const short = (_: string, one: unknown): unknown => {
    const list = ArrayBuffer.isView(one) && !(one instanceof DataView) ? Array.from(one as Int32Array) : one
    if (!Array.isArray(list) || list.length <= mostElements) return typeof list === 'bigint' ? String(list) : list
    return [...list.slice(0, mostElements), `… ${list.length - mostElements} more`]
  }
  return shownText(JSON.stringify(value, short, 2) ?? String(value), most)
}
