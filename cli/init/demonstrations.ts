/**
 * Makes the problems and the conversations of a new project: prices of a few items, which a tool looks up.
 *
 * in   nothing        out  lines of JSON
 * Half of the conversations are flawless. In 20 % the model first calls a tool that does not exist, in 15 % it looks up
 * a random item, in 15 % it guesses the answer. A model that imitates them knows the protocol; reinforcement learning
 * has to remove the flaws. Invariant: pure; the lines are always the same.
 */
import { pcg32 } from '../../kernels/random'
import { printToolCall } from '../../kernels/toolCalls/toolCalls'
import { toolResultText, unknownToolText } from '../../kernels/toolCalls/toolText'
import type { ChatMessage } from '../../messages/facts'
import { deriveSeed } from '../../runtime/effects'

/** Prices of the project's items; the files of recipes/starter repeat them. */
export const prices: Readonly<Record<string, number>> = {
  ...{ lamp: 17, chair: 43, table: 88, sofa: 65, rug: 31, bed: 94, desk: 76, clock: 22, vase: 13, stool: 28 },
}
const items = Object.keys(prices)
const conversations = 800

const question = (item: string, count: number) => `What do ${count} ${item}s cost?`

export const problemLines = (): readonly string[] =>
  items.map((item, at) => {
    const count = 2 + ((3 * at) % 8)
    return JSON.stringify({ problem: question(item, count), answer: prices[item]! * count })
  })

export const demonstrationLines = (): readonly string[] =>
  Array.from({ length: conversations }, (_, at) => JSON.stringify({ messages: conversation(at) }))

function conversation(index: number): readonly ChatMessage[] {
  const random = pcg32(deriveSeed('starter', index))
  const [item, count] = [items[random.below(items.length)]!, 2 + random.below(8)]
  const kind = random.below(20)
  const asked: ChatMessage = { role: 'user', content: question(item, count) }
  const answer = (value: number): ChatMessage => ({ role: 'assistant', content: `<answer>\\boxed{${value}}</answer>` })
  const guess = 20 + random.below(800)
  const called = (name: string, of: string, n: number, content: string): ChatMessage[] => [
    { role: 'assistant', content: printToolCall(name, { item: of, count: n }) },
    { role: 'tool', content },
  ]
  const looked = (of: string) => {
    const value = prices[of]! * count
    const text = toolResultText({ status: 'ok', exitCode: 0, signal: null, stdout: String(value), stderr: '' })
    return [...called('price', of, count, text), answer(value)]
  }
  if (kind < 10) return [asked, ...looked(item)]
  if (kind < 14) return [asked, ...called('cost', item, count, unknownToolText('cost', ['price'])), ...looked(item)]
  if (kind < 17) return [asked, ...looked(items[random.below(items.length)]!)]
  return [asked, answer(guess)]
}
