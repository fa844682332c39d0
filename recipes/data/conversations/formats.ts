/**
 * Reads the conversation sets of the paper's cold start (arXiv 2508.20722 §4.1) in their owners' formats, and ATIF
 * trajectories.
 *
 * in   a row        out  a conversation in our form: tools described in the system message, calls as `<tool_call>` JSON
 * Invariant: pure; no row makes it throw. `broken` rows do not have the set's form. `other` rows have the form, but are
 * not wanted: they hold reasoning, lack a function to call or Python code, or are of another category or language.
 */
import { printToolCall } from '../../../kernels/toolCalls/toolCalls'
import type { ChatMessage } from '../../../messages/facts'
import { pythonTool } from '../../../sandbox/tools/pythonTool'
import type { HubPlace } from '../sets'
import { atifParts } from './atif'
import { jsonValuesIn } from './jsonIn'
import { pythonCalls } from './pythonCalls'

type Read = { readonly messages: readonly ChatMessage[] } | { readonly broken: string } | { readonly other: string }

export interface ConversationSet {
  readonly name: string
  readonly title: string
  /** Place on the Hugging Face hub; absent: the conversations are files of the user. */
  readonly hub?: HubPlace
  read(row: Readonly<Record<string, unknown>>): Read
}

type Row = Readonly<Record<string, unknown>>
type Part = { readonly role: ChatMessage['role']; readonly content: string }

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value.trim() !== '' ? value.trim() : undefined
const isRow = (value: unknown): value is Row => typeof value === 'object' && value !== null && !Array.isArray(value)
const rowsIn = (value: unknown): readonly Row[] => (Array.isArray(value) ? value.filter(isRow) : [])

/** Makes a system message that describes the tools as our hermes template does. */
export function withTools(given: string, tools: readonly unknown[]): Part {
  const lines = tools.map(tool =>
    JSON.stringify(isRow(tool) && 'function' in tool ? tool : { type: 'function', function: tool }),
  )
  const described = [
    '# Tools\n\nThese functions can be called; each line is one, with a JSON schema of its arguments:\n<tools>',
    ...lines,
    '</tools>\n\nTo call one, write a JSON object with its name and its arguments:',
    '<tool_call>\n{"name": the function, "arguments": {…}}\n</tool_call>',
  ].join('\n')
  return { role: 'system', content: given === '' ? described : `${given}\n\n${described}` }
}

const callsOf = (calls: readonly { readonly name: string; readonly arguments: Row }[]): string =>
  calls.map(call => printToolCall(call.name, call.arguments)).join('\n')

/** Reads ToolACE, which has functions in the system message and calls in Python's syntax. */
function toolace(row: Row): Read {
  const [tools] = jsonValuesIn(textOf(row.system) ?? '', '[')
  if (!Array.isArray(tools) || tools.length === 0) return { other: 'no functions' }
  const parts = rowsIn(row.conversations).map(({ from, value }): Part | undefined => {
    const content = textOf(value)
    if (content === undefined) return undefined
    if (from === 'user') return { role: 'user', content }
    if (from === 'tool') return { role: 'tool', content }
    const calls = pythonCalls(content)
    return { role: 'assistant', content: calls === undefined ? content : callsOf(calls) }
  })
  return conversation([withTools('', tools.map(withObjects)), ...parts])
}

/** Replaces the type `dict`, which ToolACE's schemas use, by JSON Schema's `object`. */
function withObjects(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withObjects)
  if (!isRow(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      key === 'type' && inner === 'dict' ? 'object' : withObjects(inner),
    ]),
  )
}

/**
 * Reads APIGen-MT, which has tools as JSON beside the conversation, and calls and observations as messages of their
 * own.
 */
function apigenMt(row: Row): Read {
  const tools = typeof row.tools === 'string' ? jsonValuesIn(row.tools, '[')[0] : row.tools
  if (!Array.isArray(tools) || tools.length === 0) return { other: 'no functions' }
  const parts = rowsIn(row.conversations).map(({ from, value }): Part | undefined => {
    const content = textOf(value)
    if (content === undefined) return undefined
    if (from === 'human') return { role: 'user', content }
    if (from === 'observation') return { role: 'tool', content }
    if (from !== 'function_call') return { role: 'assistant', content }
    const [call] = jsonValuesIn(content, '{')
    return isCall(call) ? { role: 'assistant', content: callsOf([call]) } : undefined
  })
  return conversation([withTools(textOf(row.system) ?? '', tools), ...parts])
}

const isCall = (value: unknown): value is { name: string; arguments: Row } =>
  isRow(value) && typeof value.name === 'string' && isRow(value.arguments)

/** Reads Glaive, which has one text with a mark for each speaker; arguments are JSON in single quotes. */
function glaive(row: Row): Read {
  const chat = textOf(row.chat)
  if (chat === undefined) return { broken: 'no chat' }
  const tools = jsonValuesIn(textOf(row.system) ?? '', '{')
  if (tools.length === 0) return { other: 'no functions' }
  const pieces = chat.split(/^(USER|ASSISTANT|FUNCTION RESPONSE): /m).slice(1)
  const parts = Array.from({ length: Math.floor(pieces.length / 2) }, (_, k): Part | undefined => {
    const content = textOf(pieces[2 * k + 1]!.replaceAll('<|endoftext|>', ''))
    if (content === undefined) return undefined
    if (pieces[2 * k] === 'USER') return { role: 'user', content }
    if (pieces[2 * k] === 'FUNCTION RESPONSE') return { role: 'tool', content }
    if (!content.includes('<functioncall>')) return { role: 'assistant', content }
    const call = glaiveCall(content.slice(content.indexOf('<functioncall>')))
    return call === undefined ? undefined : { role: 'assistant', content: callsOf([call]) }
  })
  return conversation([withTools('', tools), ...parts])
}

function glaiveCall(text: string): { name: string; arguments: Row } | undefined {
  const [whole] = jsonValuesIn(text, '{')
  if (isCall(whole)) return whole
  const name = /"name"\s*:\s*"([^"]+)"/.exec(text)?.[1]
  const quoted = /"arguments"\s*:\s*'([\s\S]*)'\s*}\s*$/.exec(text.trim())?.[1]?.replaceAll("\\'", "'")
  const [args] = jsonValuesIn(quoted ?? '', '{')
  return name !== undefined && isRow(args) ? { name, arguments: args } : undefined
}

/** Reads Magicoder, which has a problem and a solution in Python; the solution becomes one call of our tool. */
function magicoder(row: Row): Read {
  const [problem, solution] = [textOf(row.problem), textOf(row.solution)]
  if (problem === undefined || solution === undefined) return { broken: 'no problem or solution' }
  if (row.lang !== undefined && row.lang !== 'python') return { other: 'another language' }
  const code = /```python\n([\s\S]*?)```/.exec(solution)?.[1]?.trimEnd()
  if (code === undefined || code === '') return { other: 'no Python code' }
  return conversation([
    withTools('', [pythonTool]),
    { role: 'user', content: problem },
    { role: 'assistant', content: callsOf([{ name: pythonTool.name, arguments: { code, input: '' } }]) },
  ])
}

/** Reads Tulu 3 (instruction following), which has messages in our form. */
function tulu3If(row: Row): Read {
  return conversation(rowsIn(row.messages).map(partOf))
}

/** Reads Llama-Nemotron (chat), which has an input, an output, and a flag for reasoning. */
function nemotronChat(row: Row): Read {
  const output = textOf(row.output)
  if (output === undefined) return { broken: 'no output' }
  if (typeof row.category === 'string' && row.category !== 'chat') return { other: 'another category' }
  if (row.reasoning === 'on') return { other: 'reasoning' }
  const answer = textOf(output.replace(/<think>[\s\S]*?<\/think>/g, ''))
  if (answer === undefined || answer.includes('<think>')) return { other: 'reasoning' }
  const asked = typeof row.input === 'string' ? [{ role: 'user', content: row.input }] : rowsIn(row.input)
  return conversation([...asked.map(partOf), { role: 'assistant', content: answer }])
}

/** Reads a trajectory of Harbor's Agent Trajectory Interchange Format. */
function atif(row: Row): Read {
  const parts = atifParts(row)
  return parts === undefined ? { broken: 'no ATIF document' } : conversation(parts)
}

function partOf({ role, content }: Row): Part | undefined {
  const text = textOf(content)
  if (role === 'system') return { role: 'system', content: text ?? '' }
  return text !== undefined && (role === 'user' || role === 'assistant' || role === 'tool')
    ? { role, content: text }
    : undefined
}

/**
 * Builds a conversation: drops messages after the assistant's last one and merges messages of the assistant that follow
 * each other. Messages in an impossible order make the row broken.
 */
function conversation(parts: readonly (Part | undefined)[]): Read {
  if (parts.some(part => part === undefined)) return { broken: 'a message cannot be parsed' }
  const said = (parts as readonly Part[]).filter(({ role, content }) => role !== 'system' || content !== '')
  const last = said.findLastIndex(({ role }) => role === 'assistant')
  const messages: Part[] = []
  for (const part of said.slice(0, last + 1)) {
    const before = messages.at(-1)
    if (part.role === 'system' && before !== undefined) return { broken: 'messages out of order' }
    if (part.role === 'assistant' && (before === undefined || before.role === 'system'))
      return { broken: 'messages out of order' }
    if (part.role === 'tool' && before?.role !== 'assistant' && before?.role !== 'tool')
      return { broken: 'messages out of order' }
    if (part.role === 'assistant' && before?.role === 'assistant')
      messages[messages.length - 1] = { role: 'assistant', content: `${before.content}\n${part.content}` }
    else messages.push(part)
  }
  return messages.length === 0 ? { broken: 'no answer' } : { messages }
}

const list: readonly ConversationSet[] = [
  { name: 'atif', title: 'ATIF trajectories', read: atif },
  {
    ...{ name: 'toolace', title: 'ToolACE', read: toolace },
    hub: { repo: 'Team-ACE/ToolACE', files: { train: /^data\.json$/ } },
  },
  {
    ...{ name: 'apigen-mt', title: 'APIGen-MT-5k', read: apigenMt },
    hub: { repo: 'Salesforce/APIGen-MT-5k', files: { train: /^apigen-mt_5k\.json$/ } },
  },
  {
    ...{ name: 'glaive', title: 'Glaive function calling v2', read: glaive },
    hub: { repo: 'glaiveai/glaive-function-calling-v2', files: { train: /\.json$/ } },
  },
  {
    ...{ name: 'magicoder', title: 'Magicoder OSS-Instruct', read: magicoder },
    hub: { repo: 'ise-uiuc/Magicoder-OSS-Instruct-75K', files: { train: /\.jsonl$/ } },
  },
  {
    ...{ name: 'tulu3-if', title: 'Tulu 3, instruction following', read: tulu3If },
    hub: { repo: 'allenai/tulu-3-sft-personas-instruction-following', files: { train: /^data\/train-.*\.parquet$/ } },
  },
  {
    ...{ name: 'nemotron-chat', title: 'Llama-Nemotron, chat', read: nemotronChat },
    hub: { repo: 'nvidia/Llama-Nemotron-Post-Training-Dataset', files: { train: /^SFT\/chat\/.*\.jsonl$/ } },
  },
]

export const conversationSets: ReadonlyMap<string, ConversationSet> = new Map(list.map(set => [set.name, set]))
