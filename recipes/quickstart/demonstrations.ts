/**
 * Makes demonstrations (conversations to imitate) for the quickstart's cold start. Many of them are bad examples on
 * purpose.
 *
 * in   an index and a seed      out  one conversation: question, tool calls with their responses, answer
 * After imitating them the model knows the protocol, but most of its first calls fail or compute something else, and it
 * often guesses. Reinforcement learning has to repair that. Invariant: pure; the responses are those that the real tool
 * gives to these calls.
 */
import { drawByShare, pcg32 } from '../../kernels/random'
import { parseToolCalls, printToolCall, resolveCalls } from '../../kernels/toolCalls/toolCalls'
import { toolResultText, unknownToolText } from '../../kernels/toolCalls/toolText'
import type { ChatMessage } from '../../messages/facts'
import { deriveSeed } from '../../runtime/effects'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { type QuickstartTask, quickstartTask } from './tasks'

const toolName = pythonTool.name

/**
 * Kinds of demonstrations, with their shares. solves: one right call. recovers: a broken call, then a right one.
 * stumbles: two broken calls, then a right one. gives-up: a broken call, then a guess. slips: a call with a wrong
 * expression, whose result is the answer. guesses: no call. The first three kinds end in the right answer.
 */
export const demonstrationShares = {
  solves: 0.14,
  recovers: 0.19,
  stumbles: 0.12,
  'gives-up': 0.28,
  slips: 0.17,
  guesses: 0.1,
} as const

export type DemonstrationKind = keyof typeof demonstrationShares

/** Ways in which a call is broken, equally frequent. Each of them is recorded as a failed call. */
export const breakages = ['name-error', 'syntax-error', 'malformed', 'unknown-tool', 'wrong-arguments'] as const
export type Breakage = (typeof breakages)[number]

export interface Demonstration {
  readonly kind: DemonstrationKind
  readonly task: QuickstartTask
  /** Breakages of the demonstration's broken calls, in order. */
  readonly broken: readonly Breakage[]
  readonly messages: readonly ChatMessage[]
}

/** Makes the demonstration with this index. Its problem belongs to the train split. */
export function demonstration(
  index: number,
  seed: number,
  shares: Readonly<Record<DemonstrationKind, number>> = demonstrationShares,
): Demonstration {
  const task = quickstartTask(index, deriveSeed('quickstart/demonstrations', seed), 'train')
  const random = pcg32(deriveSeed('quickstart/demonstration', seed, index))
  const kind = drawByShare(random, shares)
  const brokenCalls = kind === 'stumbles' ? 2 : kind === 'recovers' || kind === 'gives-up' ? 1 : 0
  const broken = Array.from({ length: brokenCalls }, () => breakages[random.below(breakages.length)]!)
  const calls = broken.flatMap(breakage => brokenCall(breakage, task.expression))
  return {
    kind,
    task,
    broken,
    messages: [{ role: 'user', content: task.question }, ...calls, ...ending(kind, task)],
  }
}

function ending(kind: DemonstrationKind, task: QuickstartTask): readonly ChatMessage[] {
  switch (kind) {
    case 'solves':
    case 'recovers':
    case 'stumbles':
      return [...workingCall(task.expression, task.answer), answer(task.answer)]
    case 'slips': {
      const slip = slipped(task.expression)
      return [...workingCall(slip.expression, slip.value), answer(slip.value)]
    }
    case 'gives-up':
    case 'guesses':
      return [answer(guess(task))]
  }
}

const answer = (value: string): ChatMessage => ({ role: 'assistant', content: `<answer>\\boxed{${value}}</answer>` })

function workingCall(expression: string, value: string): readonly ChatMessage[] {
  const text = toolResultText({ status: 'ok', exitCode: 0, signal: null, stdout: `${value}\n`, stderr: '' })
  return [
    { role: 'assistant', content: printToolCall(toolName, { code: `print(${expression})`, input: '' }) },
    { role: 'tool', content: text },
  ]
}

/** Makes a call that fails, and the tool's response to it. */
export function brokenCall(breakage: Breakage, expression: string): readonly ChatMessage[] {
  const code = `print(${expression})`
  const right = printToolCall(toolName, { code, input: '' })
  const messages = (call: string, response: string): readonly ChatMessage[] => [
    { role: 'assistant', content: call },
    { role: 'tool', content: response },
  ]
  switch (breakage) {
    case 'name-error': {
      const wrong = `prnt(${expression})`
      return messages(
        right.replace(code, wrong),
        failure(`NameError at line 1: name 'prnt' is not defined\n  ${wrong}`),
      )
    }
    case 'syntax-error': {
      const wrong = code.slice(0, -1)
      return messages(right.replace(code, wrong), failure(`SyntaxError at line 1: '(' was never closed\n  ${wrong}`))
    }
    case 'malformed': {
      // A malformed call: the quote after the code is missing.
      const call = right.replace(`${code}"`, code)
      const [refused] = resolveCalls(parseToolCalls(call).calls, [toolName]).resolved
      if (refused?.kind !== 'refused')
        throw new Error(`expected a malformed call in the demonstration, but the parser accepts it: ${call}`)
      return messages(call, refused.text)
    }
    case 'unknown-tool':
      return messages(right.replace(toolName, 'python'), unknownToolText('python', [toolName]))
    case 'wrong-arguments': {
      const reason = 'code must be a string'
      const rejected = { status: 'rejected', reason, exitCode: null, signal: null, stdout: '', stderr: '' } as const
      return messages(right.replace('"code"', '"script"'), toolResultText(rejected))
    }
  }
}

const failure = (stderr: string) =>
  toolResultText({ status: 'error', exitCode: 1, signal: null, stdout: '', stderr: `${stderr}\n` })

/** Returns only the expression's first operation: 12*34+5 becomes 12*34, (12+34)*5 becomes 12+34. */
function slipped(expression: string): { readonly expression: string; readonly value: string } {
  const [, a, operator, b] = /^\(?(\d+)([*+])(\d+)/.exec(expression)!
  const [left, right] = [BigInt(a!), BigInt(b!)]
  return { expression: `${a}${operator}${b}`, value: String(operator === '*' ? left * right : left + right) }
}

/** Guesses an answer without a calculation: the first number of the question that is not the right answer. */
const guess = ({ question, answer }: QuickstartTask): string =>
  question.match(/\d+/g)!.find(number => number !== answer)!
