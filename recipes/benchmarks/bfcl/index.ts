/**
 * BFCL v3, single turn: judges which functions a model calls with which arguments, on the leaderboard's own files.
 *
 * in   rows {id, question, function} and {id, ground_truth}
 * out  problems; a reward: 1 iff the calls are the expected ones
 * The id's beginning, after an optional `live_`, names the category: exec_… (the calls are executed), irrelevance (the
 * right answer calls no function), any other, such as simple or parallel_multiple (the calls are compared:
 * astCheck.ts).
 * Invariant: the prompt describes the functions as the hermes template does. The model's first turn is judged; no
 * function runs while the model writes.
 */
import { readFile } from 'node:fs/promises'
import type { RewardFunction } from '../../../config'
import { parseToolCalls, withNumbers, withoutSpecialTokens } from '../../../kernels'
import type { ChatMessage } from '../../../messages/facts'
import { badRow, isObject, type Problems, problemCollector, rowsOf } from '../problem'
import { callsFault, type FunctionCall, type FunctionDescription, type PossibleCall } from './astCheck'
import { executedFault } from './execute'

/** Parses the rows. `answers`: text of the file of possible answers, for rows without a ground_truth of their own. */
export function parseBfcl(text: string, answers: string | undefined, functionsFile: string | undefined): Problems {
  const possible = new Map<string, unknown>()
  const places = new Map<string, number>()
  for (const { row, place } of answers === undefined ? [] : rowsOf(answers)) {
    if (!isObject(row) || typeof row.id !== 'string')
      throw badRow(place, 'the row of the answers file is no JSON object with an id')
    const before = places.get(row.id)
    if (before !== undefined)
      throw badRow(place, `id '${row.id}' is already used at line ${before} of the answers file`)
    places.set(row.id, place)
    possible.set(row.id, row.ground_truth)
  }
  const { add, drop, result } = problemCollector()
  for (const { row, place } of rowsOf(text)) {
    if (row === undefined) drop('not JSON')
    else if (!isObject(row)) drop('not an object')
    else if (typeof row.id !== 'string' || row.id === '') throw badRow(place, 'the row has no id')
    else {
      const messages = messagesOf(row.question)
      const functions = Array.isArray(row.function) ? row.function : isObject(row.function) ? [row.function] : undefined
      const category = row.id.replace(/^live_/, '').replace(/_\d+(?:-\d+)*$/, '')
      const truth = row.ground_truth ?? possible.get(row.id)
      const isIrrelevant = category.includes('irrelevance')
      if (messages === undefined) drop('no question')
      else if (functions === undefined || !functions.every(isObject)) drop('no function')
      else if (!isIrrelevant && !Array.isArray(truth)) drop('no ground truth')
      else if (category.startsWith('exec') && functionsFile === undefined)
        drop('executable category without --set data.functions=FILE')
      else {
        const kinds = row.execution_result_type ?? []
        const more = category.startsWith('exec') ? { kinds, functionsFile } : {}
        const metadata = { category, functions, wanted: truth ?? [], ...more }
        add({ id: row.id, question: '', truth: '', messages: withFunctions(messages, functions), metadata }, place)
      }
    }
  }
  return result
}

/** Returns the messages of a question's first turn. */
function messagesOf(question: unknown): readonly ChatMessage[] | undefined {
  const turn = Array.isArray(question) && Array.isArray(question[0]) ? question[0] : question
  if (!Array.isArray(turn) || turn.length === 0) return undefined
  const messages = turn.map(one => (isObject(one) ? { role: one.role, content: one.content } : {}))
  const isMessage = ({ role, content }: { role?: unknown; content?: unknown }) =>
    (role === 'user' || role === 'system' || role === 'assistant') && typeof content === 'string'
  return messages.every(isMessage) ? (messages as readonly ChatMessage[]) : undefined
}

const how = [
  'You may call functions to help with the request. Their signatures stand in <tools></tools>:',
  'For each call, write a JSON object with its name and arguments in <tool_call></tool_call>:\n<tool_call>\n{"name": NAME, "arguments": {…}}\n</tool_call>\nIf none of the functions can be used, say so and call none.',
] as const

function withFunctions(messages: readonly ChatMessage[], functions: readonly unknown[]): readonly ChatMessage[] {
  const described = functions.map(one => JSON.stringify({ type: 'function', function: one })).join('\n')
  const tools = `${how[0]}\n<tools>\n${described}\n</tools>\n\n${how[1]}`
  const [first, ...rest] = messages
  if (first?.role !== 'system') return [{ role: 'system', content: tools }, ...messages]
  return [{ role: 'system', content: `${first.content}\n\n${tools}` }, ...rest]
}

interface Wanted {
  readonly category: string
  readonly functions: readonly FunctionDescription[]
  readonly wanted: readonly unknown[]
  readonly kinds?: readonly string[]
  readonly functionsFile?: string
}

/**
 * Parses JSON for checks of types, not of values: a number written like `10.0`, which the leaderboard takes for a
 * float, is read as 0.5, since JSON.parse would make it an integer.
 */
const typedJson = (text: string): unknown =>
  JSON.parse(withNumbers(text, digits => (/[.eE]/.test(digits) && Number.isInteger(Number(digits)) ? '0.5' : digits)))

function typedArguments(call: string): FunctionCall['arguments'] {
  const { arguments: given } = typedJson(call.slice(call.indexOf('{'), call.lastIndexOf('}') + 1)) as {
    readonly arguments: unknown
  }
  return (typeof given === 'string' ? typedJson(given) : given) as FunctionCall['arguments']
}

export const bfclReward: RewardFunction = async ({ response, task }, { python }) => {
  const { category, functions, wanted, kinds = [], functionsFile } = task.metadata as unknown as Wanted
  const text = withoutSpecialTokens(response)
  const parsed = parseToolCalls(text)
  const malformed = parsed.calls.find(call => call.kind === 'malformed')
  const calls = parsed.calls.flatMap((call): FunctionCall[] =>
    call.kind === 'call' ? [{ ...call, typed: typedArguments(text.slice(call.start, call.end)) }] : [],
  )
  const answer = JSON.stringify(calls.map(({ name, arguments: args }) => ({ name, arguments: args })))
  const say = (fault: string | undefined) => ({
    score: fault === undefined ? 1 : 0,
    answer,
    how: `bfcl-${category}`,
    why: fault ?? 'the calls are the expected ones',
  })
  // In the category irrelevance, a call that cannot be parsed counts as no call, since it cannot be run.
  if (category.includes('irrelevance'))
    return say(calls.length === 0 ? undefined : `calls ${calls[0]!.name}, expected no call`)
  if (malformed !== undefined) return say(malformed.kind === 'malformed' ? malformed.error : 'a call cannot be parsed')
  if (parsed.unclosed) return say('a <tool_call> is not closed')
  if (!category.startsWith('exec')) return say(callsFault(calls, wanted as readonly PossibleCall[], functions))
  return say(await executedFault(calls, wanted.map(String), kinds, await readFile(functionsFile!, 'utf8'), python))
}
