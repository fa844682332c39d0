/**
 * Reads trajectories in Harbor's Agent Trajectory Interchange Format (ATIF) that Troupe or another agent wrote.
 *
 * in   an ATIF document        out  its steps as messages: calls as `<tool_call>` JSON, each result as a tool's message
 * Images and `reasoning_content` are left out; token ids and logprobs are not read, since a conversation is rendered
 * anew. A call that already stands in the message's text, as some agents write it, is not added to the text. Steps
 * that a trajectory copied from an earlier one (`is_copied_context`) are left out, or they would be trained on twice.
 */
import { isDeepStrictEqual } from 'node:util'
import { parseToolCalls, printToolCall } from '../../../kernels/toolCalls/toolCalls'

type Row = Readonly<Record<string, unknown>>
export type Part = { readonly role: 'system' | 'user' | 'assistant' | 'tool'; readonly content: string }

const isRow = (value: unknown): value is Row => typeof value === 'object' && value !== null && !Array.isArray(value)
const rowsIn = (value: unknown): readonly Row[] => (Array.isArray(value) ? value.filter(isRow) : [])
const roles = { system: 'system', user: 'user', agent: 'assistant' } as const

/** Returns the messages of an ATIF document; undefined if it is none. A step that cannot be read is undefined. */
export function atifParts({ schema_version, steps }: Row): readonly (Part | undefined)[] | undefined {
  if (typeof schema_version !== 'string' || !schema_version.startsWith('ATIF-') || !Array.isArray(steps))
    return undefined
  return steps.flatMap((step: unknown): readonly (Part | undefined)[] => {
    if (!isRow(step) || !isRole(step.source)) return [undefined]
    if (step.is_copied_context === true) return []
    const role = roles[step.source]
    const text = textIn(step.message)
    if (role !== 'assistant') return [{ role, content: text }]
    const calls = rowsIn(step.tool_calls)
    if (!calls.every(isCall)) return [undefined]
    const content = [text, ...withoutWritten(calls, text).map(one => printToolCall(one.function_name, one.arguments))]
      .filter(line => line !== '')
      .join('\n')
    const results = rowsIn(isRow(step.observation) ? step.observation.results : undefined)
    const said: readonly Part[] = content === '' ? [] : [{ role, content }]
    return [...said, ...results.map((one): Part => ({ role: 'tool', content: textIn(one.content) }))]
  })
}

interface Call extends Row {
  readonly function_name: string
  readonly arguments: Row
}

const isCall = (row: Row): row is Call => typeof row.function_name === 'string' && isRow(row.arguments)

/** Returns the calls that the text lacks: each call in the text removes one call of equal name and arguments. */
function withoutWritten(calls: readonly Call[], text: string): readonly Call[] {
  const written = [...parseToolCalls(text).calls]
  return calls.filter(({ function_name: name, arguments: args }) => {
    const at = written.findIndex(
      one => one.kind === 'call' && one.name === name && isDeepStrictEqual({ ...one.arguments }, { ...args }),
    )
    if (at >= 0) written.splice(at, 1)
    return at < 0
  })
}

const isRole = (source: unknown): source is keyof typeof roles =>
  typeof source === 'string' && Object.hasOwn(roles, source)

/** Text of a message: a string, or the text parts of a list. */
const textIn = (value: unknown): string =>
  typeof value === 'string'
    ? value.trim()
    : rowsIn(value)
        .flatMap(({ type, text }) => (type === 'text' && typeof text === 'string' ? [text.trim()] : []))
        .join('\n')
