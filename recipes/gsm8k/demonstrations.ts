/**
 * Cold-start demonstrations for GSM8K, derived from the calculator notes in its worked answers.
 *
 * in   a row with notes such as <<48/2=24>>     out  a conversation: one Python call that does the notes, the answer
 * Invariant: pure. A row is only used when its notes are arithmetic, each gives exactly what it says, and the last one
 * gives the row's answer; so the printed number of every demonstration is the truth. Others are counted by reason.
 */
import { printToolCall } from '../../kernels/toolCalls'
import { toolResultText } from '../../kernels/toolText'
import type { ChatMessage } from '../../messages/facts'
import { pythonTool } from '../../sandbox/pythonTool'
import { equal, evaluate } from './arithmetic'
import type { Gsm8kRow } from './tasks'

const toolName = pythonTool.name

export interface Gsm8kDemonstrations {
  readonly demonstrations: readonly { readonly line: number; readonly messages: readonly ChatMessage[] }[]
  /** Rows that gave none, by reason, among those that were looked at. */
  readonly dropped: Readonly<Record<string, number>>
}

/** Demonstrations of the first rows that give one, `atMost` of them. */
export function gsm8kDemonstrations(rows: readonly Gsm8kRow[], atMost: number): Gsm8kDemonstrations {
  const demonstrations: { line: number; messages: readonly ChatMessage[] }[] = []
  const dropped: Record<string, number> = {}
  for (const row of rows) {
    if (demonstrations.length >= atMost) break
    const messages = gsm8kDemonstration(row)
    if (typeof messages === 'string') dropped[messages] = (dropped[messages] ?? 0) + 1
    else demonstrations.push({ line: row.line, messages })
  }
  return { demonstrations, dropped }
}

/** The conversation of a row, or why there is none. */
export function gsm8kDemonstration(row: Gsm8kRow): readonly ChatMessage[] | string {
  const code = codeOf(row)
  if ('reason' in code) return code.reason
  const stdout = `${row.truth}\n`
  return [
    { role: 'user', content: row.question },
    { role: 'assistant', content: printToolCall(toolName, { code: code.text, input: '' }) },
    { role: 'tool', content: toolResultText({ status: 'ok', exitCode: 0, signal: null, stdout, stderr: '' }) },
    { role: 'assistant', content: `<answer>\\boxed{${row.truth}}</answer>` },
  ]
}

const longestCode = 400

/** A statement a note. A number that an earlier note gave is written as that note's variable. */
function codeOf(row: Gsm8kRow): { readonly text: string } | { readonly reason: string } {
  const notes = [...row.solution.matchAll(/<<([^<>]*)>>/g)].map(found => found[1]!)
  if (notes.length === 0) return { reason: 'no calculator notes' }
  const truth = evaluate(row.truth)!
  const lines: string[] = []
  const variables = new Map<string, string>()
  for (const [at, note] of notes.entries()) {
    const split = note.lastIndexOf('=')
    const [expression, result] = [note.slice(0, split).trim(), note.slice(split + 1).trim()]
    const value = split < 0 ? undefined : evaluate(expression)
    const noted = evaluate(result)
    if (value === undefined || noted === undefined) return { reason: 'notes are not arithmetic' }
    // Python's floats: 0.1*3 is not 0.3. A whole number survives the division that ends in one.
    if (!equal(value, noted)) return { reason: 'a note is wrong or rounded' }
    const name = `x${at + 1}`
    lines.push(`${name} = ${inPython(expression, variables)}`)
    variables.set(result, name)
    if (at === notes.length - 1) {
      if (!equal(value, truth)) return { reason: 'the last note is not the answer' }
      lines.push(`print(round(${name}))`)
    }
  }
  const text = lines.join('\n')
  return text.length > longestCode ? { reason: 'too long' } : { text }
}

/** Numbers of Python have no leading zeros, and those that a variable holds are called by its name. */
function inPython(expression: string, variables: ReadonlyMap<string, string>): string {
  return expression
    .replace(/\d+(?:\.\d*)?|\.\d+/g, number => variables.get(number) ?? number.replace(/^0+(?=\d)/, ''))
    .replace(/\s+/g, '')
    .replace(/([+*/]|(?<=[\w.)])-)/g, ' $1 ')
}
