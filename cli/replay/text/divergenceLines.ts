/**
 * Formats a difference between the log and today's code for people: its position, its cause, both sides.
 * Text of models and tools is escaped.
 */
import type { Fact } from '../../../messages/facts'
import type { Divergence } from '../../../replay/rerun/rerunPartition'
import { escapeForTerminal, painter } from '../../io/terminal'
import { jsonText } from './jsonText'

const paint = painter(process.stdout)

const words: Readonly<Record<Divergence['kind'], string>> = {
  differs: "today's code decides otherwise",
  unexpected: "today's code does not decide this here",
  missing: "today's code decides this, but the log does not contain it",
  throws: "today's code fails on this",
}

export function divergenceLines(divergence: Divergence): string[] {
  const { place, after, kind, about, expected, actual, fields, error } = divergence
  const lines = [paint('red', `${place}  ${escapeForTerminal(about)}: ${words[kind]}`)]
  if (after !== null && after !== place) lines.push(`  after     ${after}`)
  if (error !== undefined) lines.push(`  error     ${escapeForTerminal(error)}`)
  const show = (fact: Fact | null) => {
    if (fact === null) return 'nothing'
    if (kind !== 'differs') return shortJson(fact)
    const values = fact as unknown as Record<string, unknown>
    return `${fact.type} ${shortJson(Object.fromEntries(fields.map(name => [name, values[name]])))}`
  }
  if (kind !== 'throws') lines.push(`  expected  ${show(expected)}`)
  lines.push(`  actual    ${show(actual)}`)
  return lines
}

function shortJson(value: unknown): string {
  const text = jsonText(value)
  return text.length > 2000 ? `${text.slice(0, 2000)}…` : text
}
