/**
 * Headers: what of a message anybody can read and filter by without unpacking it.
 *
 * in   a message's fields          out  type, version, run, trajectory, group, turn, call, attempt, policyVersion, as text
 * Invariant: a header is there where the message's type has the field, and nowhere else.
 *
 * The writers are generated, one a type, as in check.ts: one object literal, where properties added one by one to an
 * object would cost every record that is written.
 */
import { groupOf } from './ids'
import type { Fields } from './shape'

/** `group`, where the caller knows it already; else it is taken from the trajectory's name. */
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

/** The policy that sampled the last token; an interrupted turn may have none. */
function withPolicy(headers: Record<string, string>, segments: Segments): Record<string, string> {
  const last = segments[segments.length - 1]
  if (last) headers.policyVersion = text(last.policyVersion)
  return headers
}

const known = Array.from({ length: 1024 }, (_, n) => String(n))

/** Turns, calls and attempts are small: their text is made once. */
function text(n: number): string {
  return known[n] ?? String(n)
}
