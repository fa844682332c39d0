/**
 * Makes cold-start demonstrations (conversations to imitate) for smollm2: they teach only the format, on exercises
 * (arXiv 2508.20722 §4.1, non-reasoning cold start).
 *
 * in   an index and a seed      out  one conversation: question, tool calls with their responses, the answer
 * Some demonstrations begin with a call that fails and is then repaired, so that the model has seen a failure and
 * reinforcement learning has failed calls to reduce. Invariant: pure; the responses are the real tool's (a test
 * compares).
 */
import { pcg32 } from '../../kernels/random'
import { printToolCall } from '../../kernels/toolCalls/toolCalls'
import { toolResultText } from '../../kernels/toolCalls/toolText'
import type { ChatMessage } from '../../messages/facts'
import { deriveSeed } from '../../runtime/effects'
import { pythonTool } from '../../sandbox/tools/pythonTool'
import { type Exercise, exercise } from './exercises'

/** Share of demonstrations whose first call fails. */
export const repairShare = 0.15

export interface Demonstration {
  readonly repairs: boolean
  readonly messages: readonly ChatMessage[]
}

export function demonstration(index: number, seed: number): Demonstration {
  const random = pcg32(deriveSeed('smollm2/demonstration', seed, index))
  const repairs = random.uniform() < repairShare
  const isUnclosed = random.below(2) === 0
  const shown = exercise(random)
  return {
    repairs,
    messages: [
      { role: 'user', content: shown.question },
      ...(repairs ? brokenCall(shown, isUnclosed) : []),
      ...workingCall(shown),
      { role: 'assistant', content: `<answer>\\boxed{${shown.printed}}</answer>` },
    ],
  }
}

const codeOf = ({ before, expression }: Exercise) => [...before, `print(${expression})`].join('\n')

const workingCall = (shown: Exercise): readonly ChatMessage[] => [
  { role: 'assistant', content: printToolCall(pythonTool.name, { code: codeOf(shown), input: '' }) },
  {
    role: 'tool',
    content: toolResultText({ status: 'ok', exitCode: 0, signal: null, stdout: `${shown.printed}\n`, stderr: '' }),
  },
]

function brokenCall(shown: Exercise, isUnclosed: boolean): readonly ChatMessage[] {
  const lines = codeOf(shown).split('\n')
  const last = isUnclosed ? lines.at(-1)!.slice(0, -1) : 'print(result)'
  const error = isUnclosed ? ['SyntaxError', "'(' was never closed"] : ['NameError', "name 'result' is not defined"]
  const stderr = `${error[0]} at line ${lines.length}: ${error[1]}\n  ${last}\n`
  return [
    {
      role: 'assistant',
      content: printToolCall(pythonTool.name, { code: [...lines.slice(0, -1), last].join('\n'), input: '' }),
    },
    { role: 'tool', content: toolResultText({ status: 'error', exitCode: 1, signal: null, stdout: '', stderr }) },
  ]
}
