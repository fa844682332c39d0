/**
 * Writes a canonical message in the form that chat templates read.
 *
 * in   a message        out  role and text
 * Thinking is written as `<think>…</think>`, tool calls as `<tool_call>{"name": …, "arguments": …}</tool_call>`.
 */
import type { ChatMessage } from '../../messages/facts'
import type { Message, ToolUse } from '../conversation/message'

export function chatMessage(message: Message): ChatMessage {
  if (message.role !== 'assistant') return { role: message.role, content: message.content }
  const thinking = message.thinking === '' ? '' : `<think>\n${message.thinking}\n</think>\n\n`
  const calls = message.toolUses.map(printUse)
  return { role: 'assistant', content: thinking + [message.content, ...calls].filter(one => one !== '').join('\n') }
}

function printUse({ name, arguments: args }: ToolUse): string {
  return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": ${args}}\n</tool_call>`
}
