/**
 * Traces: the lengths and delays of rollouts, so that two arms of a benchmark can repeat the same rollouts.
 *
 * in   how many, their shape, a seed        out  for each rollout its turns, and the delay of the tool after each
 * Invariant: a trace follows from its index and the seed. Every turn but the last calls the tool.
 */

import type { ToolOutcome } from '../../actors/tools/toolPort'
import { pcg32 } from '../../kernels/random'
import { printToolCall } from '../../kernels/toolCalls/toolCalls'
import type { GroupId, TrajectoryId } from '../../messages/ids'
import { groupOf, memberOf } from '../../messages/ids'
import { deriveSeed } from '../../runtime/effects'

interface TracedTurn {
  readonly newTokens: number
  /** Milliseconds until the tool that the turn called has answered; 0 in the last turn, which calls no tool. */
  readonly toolMs: number
}

export interface Trace {
  readonly turns: readonly TracedTurn[]
  /** True when the rollout ends in the right answer. */
  readonly right: boolean
}

/** Bounds, both included, between which each quantity is drawn uniformly. */
export interface TraceShape {
  readonly turns: readonly [number, number]
  readonly newTokens: readonly [number, number]
  readonly toolMs: readonly [number, number]
}

/** Expected answer of every problem of a traced run. */
export const tracedTruth = '42'
export const tracedTool = 'execute_python_code_with_standard_io'

export function traces(count: number, shape: TraceShape, seed: number): readonly Trace[] {
  return Array.from({ length: count }, (_, index) => {
    const random = pcg32(deriveSeed('bench/trace', seed, index))
    const between = ([low, high]: readonly [number, number]) => low + random.below(high - low + 1)
    const turns = Array.from({ length: between(shape.turns) }, () => ({
      newTokens: between(shape.newTokens),
      toolMs: between(shape.toolMs),
    }))
    turns[turns.length - 1]!.toolMs = 0
    return { turns, right: index % 2 === 0 }
  })
}

const words = [
  'of',
  'the',
  'square',
  'number',
  'and',
  'two',
  'sides',
  'that',
  'add',
  'to',
  'half',
  'its',
  'angle',
  'sum',
]

/**
 * Text of `count` words that lengthens a prompt. Texts of different seeds are drawn independently, so two of them share
 * at most a few words at the start.
 */
export function wordsOf(count: number, seed: number): string {
  const random = pcg32(deriveSeed('bench/words', seed))
  return Array.from({ length: count }, () => words[random.below(words.length)]!).join(' ')
}

/** Index of a rollout within its step. A group's number stands behind the dot of its name (`s0002.0005`). */
export function indexOf(trajectory: TrajectoryId, groupSize: number): number {
  const group: GroupId = groupOf(trajectory)
  return Number(group.slice(group.indexOf('.') + 1)) * groupSize + memberOf(trajectory)
}

/** Text that stands for the model's output in a turn: a call that carries the tool's delay, or the answer. */
export function textOf(trace: Trace, turn: number): string {
  const { toolMs } = trace.turns[turn]!
  if (turn < trace.turns.length - 1) return printToolCall(tracedTool, { code: 'print(6*7)', input: String(toolMs) })
  return `<answer>\\boxed{${trace.right ? tracedTruth : '41'}}</answer>`
}

/** The tool of a traced run: it runs nothing and answers after the delay that the call states. */
export async function delayedTool(args: Readonly<Record<string, unknown>>): Promise<ToolOutcome> {
  const wallMs = Number(args.input)
  await new Promise(resolve => setTimeout(resolve, wallMs))
  return { status: 'ok', exitCode: 0, signal: null, stdout: '42\n', stderr: '', wallMs, cpuMs: 0 }
}
