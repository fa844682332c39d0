/**
 * Adds thoughts to demonstrations, for a reasoning-heavy cold start.
 *
 * in   a demonstration's messages and its task
 * out  the messages, with a `<reason>` before each turn of the model
 * Invariant: calls and answers stay as they are; only text before them is added.
 */
import type { ChatMessage } from '../../messages/facts'
import type { QuickstartTask } from './tasks'

export function withReasons(messages: readonly ChatMessage[], { question, expression }: QuickstartTask): ChatMessage[] {
  const numbers = (question.match(/\d+/g) ?? []).join(', ')
  return messages.map((message, at): ChatMessage => {
    if (message.role !== 'assistant') return message
    return { ...message, content: `<reason>${thought(messages, at, numbers, expression)}</reason>\n${message.content}` }
  })
}

function thought(messages: readonly ChatMessage[], at: number, numbers: string, expression: string): string {
  const isAnswer = messages[at]!.content.startsWith('<answer>')
  const said = messages[at - 1]!
  if (isAnswer && said.role === 'tool')
    return 'The tool has printed a number. It fits the question, so it is the answer.'
  if (isAnswer) return `The numbers are ${numbers}. I think that I see the answer.`
  if (said.role === 'tool') return `That call failed. I look at ${expression} again and write it more carefully.`
  return `The numbers are ${numbers}. The question asks for ${expression}. Python can work that out.`
}
