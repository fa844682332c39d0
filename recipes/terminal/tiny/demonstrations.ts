/**
 * Makes demonstrations of shell tasks for the cold start. Many of them are bad examples on purpose, as the quickstart's
 * are.
 *
 * in   an index and a seed      out  one conversation: instruction, calls with their responses, `submit`
 * After imitating them the model knows the calls and the commands, but it often runs another command, breaks a call or
 * gives up. Reinforcement learning has to repair that. Invariant: pure; the responses are those that the real tools
 * give to these calls, and only training words occur.
 */
import { bashTool, submitTool } from '../../../environments/tools/schemas'
import { drawByShare, pcg32 } from '../../../kernels/random'
import { parseToolCalls, printToolCall, resolveCalls } from '../../../kernels/toolCalls/toolCalls'
import { toolResultText, unknownToolText } from '../../../kernels/toolCalls/toolText'
import type { ChatMessage } from '../../../messages/facts'
import { deriveSeed } from '../../../runtime/effects'
import { type TinyTask, tinyTask } from './tasks'

export const tinyTools = [bashTool, submitTool] as const

/**
 * Kinds of demonstrations, with their shares. solves: the right command. recovers: a broken call, then the right
 * command. stumbles: two broken calls, then the right command. gives-up: a broken call, then `submit`. slips: a wrong
 * command. idles: only `submit`. The first three kinds are rewarded.
 */
export const demonstrationShares = {
  solves: 0.16,
  recovers: 0.18,
  stumbles: 0.1,
  'gives-up': 0.16,
  slips: 0.32,
  idles: 0.08,
} as const

export type DemonstrationKind = keyof typeof demonstrationShares

/** Ways in which a call is broken, equally frequent. Each of them is recorded as a failed call. */
export const breakages = ['unknown-program', 'open-quote', 'malformed', 'unknown-tool', 'wrong-arguments'] as const
export type Breakage = (typeof breakages)[number]

export interface Demonstration {
  readonly kind: DemonstrationKind
  readonly task: TinyTask
  readonly messages: readonly ChatMessage[]
}

/** Makes the demonstration with this index. Its task belongs to the split `train`. */
export function demonstration(index: number, seed: number): Demonstration {
  const task = tinyTask(index, deriveSeed('terminal-tiny/demonstrations', seed), 'train')
  const random = pcg32(deriveSeed('terminal-tiny/demonstration', seed, index))
  const pick = <T>(of: readonly T[]): T => of[random.below(of.length)]!
  const kind = drawByShare(random, demonstrationShares)
  const brokenCalls = kind === 'stumbles' ? 2 : kind === 'recovers' || kind === 'gives-up' ? 1 : 0
  const broken = Array.from({ length: brokenCalls }, () => brokenCall(pick(breakages), task.command)).flat()
  const command = kind === 'slips' ? pick(task.wrong) : task.command
  const run = kind === 'gives-up' || kind === 'idles' ? [] : workingCall(command)
  const submit: ChatMessage = { role: 'assistant', content: printToolCall(submitTool.name, {}) }
  return { kind, task, messages: [{ role: 'user', content: task.instruction }, ...broken, ...run, submit] }
}

const call = (command: string) => printToolCall(bashTool.name, { command })
const exchange = (called: string, response: string): readonly ChatMessage[] => [
  { role: 'assistant', content: called },
  { role: 'tool', content: response },
]
const quiet = { signal: null, stdout: '', stderr: '' } as const

const workingCall = (command: string) =>
  exchange(call(command), toolResultText({ status: 'ok', exitCode: 0, ...quiet }))

/** Makes a call that fails, and the tool's response to it. */
export function brokenCall(breakage: Breakage, command: string): readonly ChatMessage[] {
  const right = call(command)
  switch (breakage) {
    case 'unknown-program': {
      // Misspells the last program of a pipe: its exit code is that of the whole command.
      const [, before, program, rest] = /^(.*\| )?(\w+)(.*)$/.exec(command)!
      const wrong = `${program}${program}`
      return exchange(
        call(`${before ?? ''}${wrong}${rest}`),
        failure(127, `bash: line 1: ${wrong}: command not found\n`),
      )
    }
    case 'open-quote':
      return exchange(
        call(`${command}'`),
        failure(2, "bash: eval: line 1: unexpected EOF while looking for matching `''\n"),
      )
    case 'malformed': {
      // A malformed call: the quote after the command is missing.
      const wrong = right.replace('"}}', '}}')
      const [refused] = resolveCalls(parseToolCalls(wrong).calls, [bashTool.name]).resolved
      if (refused?.kind !== 'refused')
        throw new Error(`expected a malformed call in the demonstration, but the parser accepts it: ${wrong}`)
      return exchange(wrong, refused.text)
    }
    case 'unknown-tool':
      return exchange(
        right.replace(`"${bashTool.name}"`, '"shell"'),
        unknownToolText(
          'shell',
          tinyTools.map(({ name }) => name),
        ),
      )
    case 'wrong-arguments': {
      const reason = 'command must be a string'
      return exchange(
        right.replace('"command"', '"cmd"'),
        toolResultText({ status: 'rejected', reason, exitCode: null, ...quiet }),
      )
    }
  }
}

const failure = (exitCode: number, stderr: string) => toolResultText({ status: 'error', exitCode, ...quiet, stderr })
