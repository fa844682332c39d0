/**
 * Headers: the fields of a message that a tool can read and filter by without unpacking the value.
 *
 * in   a message's fields
 * out  type, version, run, trajectory, group, turn, call, attempt, policyVersion, as text
 * Invariant: a message's type alone decides which of these headers its record has, with one exception: a message with
 * `segments` has no `policyVersion` if it has no segment. The codec may add `traceparent`.
 *
 * A writer is generated code for each type, as in check.ts: one object literal. Adding properties to an object one by
 * one would slow every record that is written.
 */
import { groupOf } from './ids'
import type { Fields } from './shape'

/**
 * Writes the headers of a message. @param group the message's group if the caller knows it; else it is derived from the
 * trajectory's id
 */
export type HeaderWriter = (run: string, message: object, group?: string) => Record<string, string>

type Segments = readonly { readonly policyVersion: number }[]

export function headersOf(type: string, version: number, fields: Fields): HeaderWriter {
  const parts = [`type: ${JSON.stringify(type)}`, `version: '${version}'`, 'run']
  if ('trajectory' in fields)
    parts.push('trajectory: message.trajectory', 'group: group ?? groupOf(message.trajectory)')
  else if ('group' in fields) parts.push('group: message.group')
  for (const name of ['turn', 'call', 'attempt']) {
    if (name in fields) parts.push(`${name}: text(message.${name})`)
  }
  if ('version' in fields) parts.push('policyVersion: text(message.version)')
  const literal = `({ ${parts.join(', ')} })`
  const body = 'segments' in fields ? `withPolicy(${literal}, message.segments)` : literal
  const source = `'use strict'; return (run, message, group) => ${body}`
  return new Function('groupOf', 'text', 'withPolicy', source)(groupOf, text, withPolicy) as HeaderWriter
}

/** Adds the policy version that sampled the last token as `policyVersion`; adds nothing when no token was sampled. */
function withPolicy(headers: Record<string, string>, segments: Segments): Record<string, string> {
  const last = segments[segments.length - 1]
  if (last) headers.policyVersion = text(last.policyVersion)
  return headers
}

const smallNumbers = Array.from({ length: 1024 }, (_, n) => String(n))

/** Converts a number to text; text stays as it is. Texts of small numbers (turns, calls, attempts) are cached. */
function text(value: number | string): string {
  return typeof value === 'string' ? value : (smallNumbers[value] ?? String(value))
}
