/**
 * Canonical messages: one form of a conversation for all dialects, and the key by which two messages are compared.
 *
 * in   messages, as a dialect's parser made them        out  a key; messages with equal keys are taken for the same
 * Invariant: messages have equal keys if they differ only in key order or white space of tool arguments, line ends,
 * white space around a text, ids of tool calls, error marks of tool results, or Claude Code's lines
 * `x-anthropic-billing-header:`.
 */
import { hash } from 'node:crypto'

export interface ToolUse {
  /** Id by which the client's tool result names the call. */
  readonly id: string
  readonly name: string
  /** Arguments as canonical JSON; the text itself if it is not JSON. */
  readonly arguments: string
}

export interface AssistantMessage {
  readonly role: 'assistant'
  readonly content: string
  /** Text of the model's reasoning, without its tags; '' if there is none, or the client left it out. */
  readonly thinking: string
  readonly toolUses: readonly ToolUse[]
}

export interface ToolMessage {
  readonly role: 'tool'
  readonly content: string
  readonly toolUseId: string
  /** true: the client marks the result as an error. null in dialects that do not mark errors. */
  readonly isError: boolean | null
}

export type Message = { readonly role: 'system' | 'user'; readonly content: string } | AssistantMessage | ToolMessage

/** Writes plain data as JSON with sorted keys and without white space. */
export function canonicalJson(data: unknown): string {
  if (data === null || typeof data !== 'object') return JSON.stringify(data) ?? 'null'
  if (Array.isArray(data)) return `[${data.map(canonicalJson).join(',')}]`
  const fields = data as Readonly<Record<string, unknown>>
  const names = Object.keys(fields).filter(name => fields[name] !== undefined)
  return `{${names
    .sort()
    .map(name => `${JSON.stringify(name)}:${canonicalJson(fields[name])}`)
    .join(',')}}`
}

/** Returns JSON text in canonical form; any other text unchanged. Empty text stands for no arguments. */
export function canonicalArguments(text: string): string {
  if (text.trim() === '') return '{}'
  try {
    return canonicalJson(JSON.parse(text))
  } catch {
    return text
  }
}

/** Lines that Claude Code puts into its system prompt and changes with every request (claude-code issue 24168). */
const volatileLine = /^[ \t]*x-anthropic-billing-header:.*(?:\n|$)/gim

/** Normalises a text: line ends, volatile header lines, white space around it. */
export const normalText = (text: string): string => {
  const lines = text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text
  return lines.replace(volatileLine, '').trim()
}

/** Returns the key of a message, by which messages are compared: equal keys mean the same message. */
export function messageKey(message: Message): string {
  switch (message.role) {
    case 'system':
    case 'user':
      return JSON.stringify([message.role, normalText(message.content)])
    case 'tool':
      return JSON.stringify(['tool', normalText(message.content)])
    case 'assistant': {
      const uses = message.toolUses.map(use => [use.name, canonicalArguments(use.arguments)])
      return JSON.stringify(['assistant', normalText(message.content), normalText(message.thinking), uses])
    }
  }
}

/** Returns the digest that an assistant's message has once its thinking is left out. */
export const strippedDigest = (message: AssistantMessage): string =>
  message.thinking === '' ? messageDigest(message) : digestOf(messageKey({ ...message, thinking: '' }))

const digests = new WeakMap<Message, string>()

/** Digest of a message's key; computed once for each message object. */
export function messageDigest(message: Message): string {
  const known = digests.get(message)
  if (known !== undefined) return known
  const digest = digestOf(messageKey(message))
  digests.set(message, digest)
  return digest
}

/**
 * True if two messages have the same key because they are written the same way. False says nothing: their keys may
 * still be equal.
 */
export function isSameText(one: Message, other: Message): boolean {
  if (one.role !== other.role || one.content !== other.content) return false
  if (one.role !== 'assistant' || other.role !== 'assistant') return true
  if (one.thinking !== other.thinking || one.toolUses.length !== other.toolUses.length) return false
  return one.toolUses.every((use, i) => {
    const { name, arguments: args } = other.toolUses[i]!
    return use.name === name && use.arguments === args
  })
}

/** Digest of the conversation with the digest `before` ('' at the start), extended by its tools or a message digest. */
export const chained = (before: string, digest: string): string => digestOf(`${before}\0${digest}`)

export const digestOf = (text: string): string => hash('sha256', text, 'base64url').slice(0, 24)
