/**
 * Tool calls in the hermes format: `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>`.
 *
 * in   what the model wrote in one turn        out  its calls in order, well-formed or not
 * Invariant: never throws, in time linear in the text. A span ends at the first closing tag that is not inside a JSON
 * string; a tag that is never closed is no call. An opening tag inside a span makes it malformed.
 */
import type { ToolStatus } from '../../messages/facts'
import { jsonFault } from './jsonFault'
import { malformedCallText, unknownToolText } from './toolText'

const openTag = '<tool_call>'
const closeTag = '</tool_call>'

/** `start` and `end` are where the call stands in the text, tags included: characters. */
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
      /** What the model is shown. */
      readonly error: string
      readonly raw: string
      readonly start: number
      readonly end: number
    }

export interface ParsedCalls {
  readonly calls: readonly ParsedCall[]
  /** A call was begun and not ended: the turn was cut, or the model lost its way. */
  readonly unclosed: boolean
}

/** All calls of a turn's text; everything between them is ignored. */
export function parseToolCalls(text: string): ParsedCalls {
  const calls: ParsedCall[] = []
  // Looking past a quoted closing tag may read the same characters for many spans: bounded, then the first tag counts.
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

/** A call as the model would write it: for demonstrations and tests. */
export function printToolCall(name: string, args: Readonly<Record<string, unknown>>): string {
  return `${openTag}\n${JSON.stringify({ name, arguments: args })}\n${closeTag}`
}

/** ready: to be executed. refused: answered with `text`, nothing is executed. `call` counts a turn's calls from 0. */
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
      /** Empty where no name could be read. */
      readonly tool: string
      readonly status: Extract<ToolStatus, 'malformed' | 'unknown-tool'>
      readonly text: string
    }

/**
 * What to do about each of the first `callsPerTurn` calls. The rest is dropped, without an answer to the model, as in
 * the release; it is returned so that it can be counted.
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

/** The first closing tag from `body` on that is outside JSON strings, −1 if none is found within `budget` characters. */
function closeOutsideStrings(text: string, body: number, budget: number): { at: number; read: number } {
  let quoted = false
  const stop = Math.min(text.length, body + budget)
  for (let at = body; at < stop; at++) {
    const code = text.charCodeAt(at)
    if (code === 0x22) quoted = !quoted
    else if (quoted && code === 0x5c) at++
    // JSON has no raw control characters in strings: nothing after one can be a call.
    else if (quoted && code < 0x20) return { at: -1, read: at - body }
    else if (!quoted && code === 0x3c && text.startsWith(closeTag, at)) return { at, read: at - body }
  }
  return { at: -1, read: stop - body }
}
