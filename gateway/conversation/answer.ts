/**
 * Reads what the model wrote as an assistant's message: thinking, text, and tool calls.
 *
 * in   the text of a turn, with its special tokens; whether the request offered tools        out  a canonical message
 * Invariant: equal inputs give equal messages, so a session that is rebuilt from the log finds the same conversations.
 * A tool call that is not well-formed stays in the content, where the client can see it.
 */
import { parseToolCalls } from '../../kernels'
import { type AssistantMessage, canonicalJson, type ToolUse } from './message'

const thinkOpen = '<think>'
const thinkClose = '</think>'
/** Special tokens at the end of a turn, such as `<|im_end|>`. */
const endTokens = /(?:\s*(?:<\|[^|<>\s]{1,40}\|>|<\/s>|<eos>|<end_of_turn>))+\s*$/

/** Removes the special tokens that end a turn. */
export const withoutEnd = (text: string): string => text.replace(endTokens, '')

/**
 * Splits a text into the thinking at its start and the rest. If the text or the prompt opens the thinking and the text
 * has no `</think>`, all of it is thinking. `isOpen`: the prompt ends with `<think>`.
 */
export function splitThinking(text: string, isOpen: boolean): { readonly thinking: string; readonly rest: string } {
  const start = text.trimStart()
  if (start.startsWith(thinkOpen)) {
    const close = start.indexOf(thinkClose)
    if (close < 0) return { thinking: start.slice(thinkOpen.length), rest: '' }
    return { thinking: start.slice(thinkOpen.length, close), rest: start.slice(close + thinkClose.length) }
  }
  const close = text.indexOf(thinkClose)
  if (isOpen && close < 0) return { thinking: text, rest: '' }
  if (!isOpen && (close < 0 || text.lastIndexOf(thinkOpen, close) >= 0)) return { thinking: '', rest: text }
  return { thinking: text.slice(0, close), rest: text.slice(close + thinkClose.length) }
}

export interface AnswerOptions {
  /** True if the request offered tools; without any, a tool call is text. */
  readonly hasTools: boolean
  /** True if the prompt ends with the opening tag of thinking. */
  readonly opensThinking: boolean
  /** Returns the id of the tool call with this index in the turn. */
  readonly idOf: (index: number) => string
}

export function answerOf(text: string, { hasTools, opensThinking, idOf }: AnswerOptions): AssistantMessage {
  const { thinking, rest } = splitThinking(withoutEnd(text), opensThinking)
  const toolUses: ToolUse[] = []
  let content = rest
  if (hasTools) {
    const kept: string[] = []
    let from = 0
    for (const call of parseToolCalls(rest).calls) {
      if (call.kind === 'malformed') continue
      kept.push(rest.slice(from, call.start))
      from = call.end
      toolUses.push({ id: idOf(toolUses.length), name: call.name, arguments: canonicalJson(call.arguments) })
    }
    content = [...kept, rest.slice(from)].join('')
  }
  return { role: 'assistant', content: content.trim(), thinking: thinking.trim(), toolUses }
}
