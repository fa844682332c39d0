/**
 * Parses tool calls in the hermes format: `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>`.
 *
 * in   the text of one turn        out  its calls in order, well-formed or malformed
 * A call ends at its first closing tag; if that stands inside a JSON string of a well-formed call, at the first closing
 * tag outside strings, which is searched for within a bounded number of characters. An opening tag without a closing
 * tag begins no call. An opening tag inside a call makes the call malformed, unless it stands in a JSON string.
 * Invariant: never throws on any text; linear time in the text.
 */
import type { ToolStatus } from '../../messages/facts'
import { jsonFault } from './jsonFault'
import { malformedCallText, unknownToolText } from './toolText'

const openTag = '<tool_call>'
const closeTag = '</tool_call>'

/** Tool call found in a text, at the characters from `start` up to but not including `end`; its tags are included. */
export type ParsedCall =
  | {
      readonly kind: 'call'
      readonly name: string
      readonly arguments: Readonly<Record<string, unknown>>
      readonly start: number
      readonly end: number
    }
  | {
      readonly kind: 'malformed'
      /** Fault of the call in words, written for the model. */
      readonly error: string
      readonly raw: string
      readonly start: number
      readonly end: number
    }

export interface ParsedCalls {
  readonly calls: readonly ParsedCall[]
  /**
   * true: an opening tag after the last call has no closing tag, since the turn was cut or the model made a mistake.
   */
  readonly unclosed: boolean
}

/** Parses all calls in a turn's text, and ignores everything between them. */
export function parseToolCalls(text: string): ParsedCalls {
  const calls: ParsedCall[] = []
  // Upper bound on the characters read to skip closing tags in strings, since many calls may read the same ones. When
  // it is used up, a call ends at its first closing tag.
  let budget = 4 * text.length + 1024
  let from = 0
  for (;;) {
    const start = text.indexOf(openTag, from)
    if (start < 0) return { calls, unclosed: false }
    const body = start + openTag.length
    const first = text.indexOf(closeTag, body)
    if (first < 0) return { calls, unclosed: true }
    let close = first
    let parsed = parseCall(text.slice(body, close))
    if (parsed.kind === 'malformed' && budget > 0) {
      const { at, read } = closeOutsideStrings(text, body, budget)
      budget -= 2 * read
      if (at > first) {
        const longer = parseCall(text.slice(body, at))
        if (longer.kind === 'call') {
          parsed = longer
          close = at
        }
      }
    }
    from = close + closeTag.length
    calls.push({ ...parsed, start, end: from })
  }
}

/** Returns a call as the model would write it, for demonstrations, prompts and tests. */
export function printToolCall(name: string, args: Readonly<Record<string, unknown>>): string {
  return `${openTag}\n${JSON.stringify({ name, arguments: args })}\n${closeTag}`
}

/**
 * Decision about a call. ready: execute it. refused: answer with `text`, execute nothing. `call` is the call's index in
 * its turn, from 0.
 */
export type ResolvedCall =
  | {
      readonly kind: 'ready'
      readonly call: number
      readonly tool: string
      readonly arguments: Readonly<Record<string, unknown>>
    }
  | {
      readonly kind: 'refused'
      readonly call: number
      /** Name of the tool; '' if the call has no readable name. */
      readonly tool: string
      readonly status: Extract<ToolStatus, 'malformed' | 'unknown-tool'>
      readonly text: string
    }

/**
 * Decides for each of the first `callsPerTurn` calls whether it is executed. The other calls are dropped without an
 * answer to the model, as in the paper's released code, and returned so that they can be counted.
 */
export function resolveCalls(
  calls: readonly ParsedCall[],
  tools: readonly string[],
  callsPerTurn = Number.POSITIVE_INFINITY,
): { readonly resolved: readonly ResolvedCall[]; readonly dropped: readonly ParsedCall[] } {
  const resolved = calls.slice(0, callsPerTurn).map((one, call): ResolvedCall => {
    if (one.kind === 'malformed') return { kind: 'refused', call, tool: '', status: 'malformed', text: one.error }
    if (tools.includes(one.name)) return { kind: 'ready', call, tool: one.name, arguments: one.arguments }
    return { kind: 'refused', call, tool: one.name, status: 'unknown-tool', text: unknownToolText(one.name, tools) }
  })
  return { resolved, dropped: calls.slice(resolved.length) }
}

type Body =
  | { kind: 'call'; name: string; arguments: Record<string, unknown> }
  | { kind: 'malformed'; error: string; raw: string }

function parseCall(raw: string): Body {
  const malformed = (fault: string): Body => ({ kind: 'malformed', error: malformedCallText(fault), raw })
  const call = parseJson(raw)
  if (call.fault !== null) {
    return malformed(raw.includes(openTag) ? `${openTag} inside ${openTag}: ${call.fault}` : call.fault)
  }
  if (!isObject(call.value)) return malformed('a call is an object with the keys "name" and "arguments"')
  for (const key of ['name', 'arguments']) {
    if (!Object.hasOwn(call.value, key)) return malformed(`the key "${key}" is missing`)
  }
  const name = call.value.name
  if (typeof name !== 'string' || name === '') return malformed('"name" is not the name of a tool')
  let args = call.value.arguments
  if (typeof args === 'string') {
    const inner = parseJson(args)
    if (inner.fault !== null) return malformed(`"arguments" is a string that is not JSON: ${inner.fault}`)
    args = inner.value
  }
  if (!isObject(args)) return malformed('"arguments" is not an object')
  return { kind: 'call', name, arguments: args }
}

function parseJson(text: string): { readonly fault: string | null; readonly value: unknown } {
  const fault = jsonFault(text)
  return { fault, value: fault === null ? JSON.parse(text) : undefined }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/**
 * Returns the position of the first closing tag outside JSON strings, at the position `body` or later; −1 if there is
 * none within `budget` characters, or if a string before it contains a raw control character. `read`: number of
 * characters read.
 */
function closeOutsideStrings(text: string, body: number, budget: number): { at: number; read: number } {
  let quoted = false
  const stop = Math.min(text.length, body + budget)
  for (let at = body; at < stop; at++) {
    const code = text.charCodeAt(at)
    if (code === 0x22) quoted = !quoted
    else if (quoted && code === 0x5c) at++
    // JSON does not allow a raw control character in a string, so nothing after it can complete the call.
    else if (quoted && code < 0x20) return { at: -1, read: at - body }
    else if (!quoted && code === 0x3c && text.startsWith(closeTag, at)) return { at, read: at - body }
  }
  return { at: -1, read: stop - body }
}
