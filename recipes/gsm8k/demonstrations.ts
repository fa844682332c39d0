/**
 * Makes cold-start demonstrations for GSM8K from the calculator notes in its worked answers.
 *
 * in   a row with notes such as <<48/2=24>>, a seed
 * out  a conversation: Python calls that compute the notes, then the answer
 * Invariant: pure. A row is used only if every note is arithmetic with the stated result, and the last result is the
 * row's answer; so the last number that a demonstration prints is the truth. For other rows the reason is returned.
 */
import { printToolCall } from '../../kernels/toolCalls/toolCalls'
import { toolResultText } from '../../kernels/toolCalls/toolText'
import type { ChatMessage } from '../../messages/facts'
import { deriveSeed } from '../../runtime/effects'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { equal, evaluate, type Fraction } from './arithmetic'
import type { Gsm8kRow } from './rows'

/**
 * Kinds of demonstrations, with their shares in %. solves: one call. splits: one call for all notes but the last, and a
 * second call for the last. repairs: a call that fails, then the right one. splits and repairs show the model more than
 * one call in a trajectory. A row that cannot be split becomes `solves`.
 */
const demonstrationShares = { splits: 30, repairs: 15, solves: 55 } as const
export type DemonstrationKind = keyof typeof demonstrationShares

export interface Demonstration {
  readonly kind: DemonstrationKind
  /** Messages of the conversation: the user's question first, the answer last. */
  readonly messages: readonly ChatMessage[]
}

/** A calculator note as a Python statement. */
interface Statement {
  readonly name: string
  /** Right side of the statement with the results of earlier statements as names (`x1 * 2`). */
  readonly named: string
  /** Right side of the statement with the results of earlier statements as numbers, not as names. */
  readonly plain: string
  readonly value: Fraction
}

const maxCodeChars = 400

/** Returns the demonstration of a row, or the reason why it has none. Seed and question decide its kind. */
export function demonstrationOf(row: Gsm8kRow, seed: number): Demonstration | string {
  const read = statementsOf(row)
  if (typeof read === 'string') return read
  const kind = kindOf(deriveSeed('gsm8k/demonstration', seed, row.question) % 100, read)
  const calls = callsOf(kind, read, deriveSeed('gsm8k/breakage', seed, row.question) % 2 === 0)
  if (calls.some(call => call.code.length > maxCodeChars)) return 'too long'
  return {
    kind,
    messages: [
      { role: 'user', content: row.question },
      ...calls.flatMap(({ code, response }): ChatMessage[] => [
        { role: 'assistant', content: printToolCall(pythonTool.name, { code, input: '' }) },
        { role: 'tool', content: response },
      ]),
      { role: 'assistant', content: `<answer>\\boxed{${row.truth}}</answer>` },
    ],
  }
}

function statementsOf(row: Gsm8kRow): readonly Statement[] | string {
  const statements: Statement[] = []
  const names = new Map<string, string>()
  for (const note of row.notes) {
    const split = note.lastIndexOf('=')
    const [expression, result] = [note.slice(0, Math.max(0, split)).trim(), note.slice(split + 1).trim()]
    const [value, noted] = [evaluate(expression), evaluate(result)]
    if (value === undefined || noted === undefined) return 'notes are not arithmetic'
    if (!equal(value, noted)) return 'a note is wrong or rounded'
    if (!/[-+*/]/.test(expression)) return 'a note calculates nothing'
    const name = `x${statements.length + 1}`
    statements.push({ name, named: inPython(expression, names), plain: inPython(expression, new Map()), value })
    names.set(result, name)
  }
  const last = statements.at(-1)
  if (last === undefined) return 'no calculator notes'
  return equal(last.value, evaluate(row.truth)!) ? statements : 'the last note is not the answer'
}

/**
 * Writes an expression in Python: numbers without leading zeros, and the name of a variable in place of a number that
 * it holds.
 */
function inPython(expression: string, names: ReadonlyMap<string, string>): string {
  return expression
    .replace(/\d+(?:\.\d*)?|\.\d+/g, number => names.get(number) ?? number.replace(/^0+(?=\d)/, ''))
    .replace(/\s+/g, '')
    .replace(/([+*/]|(?<=[\w.)])-)/g, ' $1 ')
}

function kindOf(percent: number, statements: readonly Statement[]): DemonstrationKind {
  const { splits, repairs } = demonstrationShares
  if (percent < splits)
    return statements.length > 1 && statements.at(-2)!.value.denominator === 1n ? 'splits' : 'solves'
  return percent < splits + repairs ? 'repairs' : 'solves'
}

interface Call {
  readonly code: string
  readonly response: string
}

function callsOf(kind: DemonstrationKind, statements: readonly Statement[], byName: boolean): readonly Call[] {
  const last = statements.at(-1)!
  const whole = workingCall(statements.map(named), last)
  switch (kind) {
    case 'solves':
      return [whole]
    case 'repairs':
      return [byName ? unknownName(statements) : unclosed(statements), whole]
    case 'splits': {
      const first = statements.slice(0, -1)
      // Calls share no variables, so the second call has its numbers written out.
      return [workingCall(first.map(named), first.at(-1)!), workingCall([`${last.name} = ${last.plain}`], last)]
    }
  }
}

const named = (statement: Statement) => `${statement.name} = ${statement.named}`

/**
 * Makes a call that prints the result through round(): Python's division gives floats, whose products are not exact.
 */
function workingCall(lines: readonly string[], shown: Statement): Call {
  const code = [...lines, `print(round(${shown.name}))`].join('\n')
  const stdout = `${shown.value.numerator}\n`
  return { code, response: toolResultText({ status: 'ok', exitCode: 0, signal: null, stdout, stderr: '' }) }
}

/** Makes a call that fails because it prints a name that the code does not define. */
function unknownName(statements: readonly Statement[]): Call {
  return failingCall(statements, 'print(round(total))', 'NameError', "name 'total' is not defined")
}

function unclosed(statements: readonly Statement[]): Call {
  return failingCall(statements, `print(round(${statements.at(-1)!.name})`, 'SyntaxError', "'(' was never closed")
}

function failingCall(statements: readonly Statement[], line: string, error: string, message: string): Call {
  const stderr = `${error} at line ${statements.length + 1}: ${message}\n  ${line}\n`
  return {
    code: [...statements.map(named), line].join('\n'),
    response: toolResultText({ status: 'error', exitCode: 1, signal: null, stdout: '', stderr }),
  }
}
