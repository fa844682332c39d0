/**
 * Lists the texts of the messages that a call of a captured session added to its conversation: thinking, content, and
 * tool uses as JSON.
 */
import type { CallStarted } from '../../messages/facts'

export interface AddedText {
  readonly role: string
  readonly text: string
}

export function addedTexts({ messages }: Pick<CallStarted, 'messages'>): readonly AddedText[] {
  const list = JSON.parse(messages) as readonly Readonly<Record<string, unknown>>[]
  return list.flatMap(({ role, thinking, content, toolUses }) => {
    const texts = [thinking, content].filter((text): text is string => typeof text === 'string' && text !== '')
    const uses = Array.isArray(toolUses) ? toolUses.map(use => JSON.stringify(use)) : []
    return [...texts, ...uses].map(text => ({ role: String(role), text }))
  })
}
