/**
 * Dialect of Anthropic's messages API.
 *
 * in   bodies of POST /v1/messages        out  message objects, events, errors
 * Invariant: content blocks come one after the other: thinking, text, then each tool use. Events are message_start, and
 * for each block its start, its deltas and its stop; then message_delta with the stop reason, and message_stop. A
 * stream whose call fails ends with an error event instead.
 */
import { z } from 'zod'
import type { AssistantMessage, Message, ToolUse } from '../conversation/message'
import { canonicalJson } from '../conversation/message'
import { type GatewayError, invalid, type RefusalKind } from '../gatewayError'
import type { Delta } from './deltas'
import {
  type AnswerView,
  anyObject,
  askedOf,
  checked,
  checkMessages,
  type DialectAdapter,
  event,
  hostedTool,
  samplingFields,
  schemaOf,
  textOfParts,
} from './dialect'

const block = z.looseObject({ type: z.string() })
const body = z.looseObject({
  model: z.string(),
  ...samplingFields,
  messages: z.array(
    z.looseObject({ role: z.enum(['user', 'assistant', 'system']), content: z.union([z.string(), z.array(block)]) }),
  ),
  system: z.union([z.string(), z.array(block)]).nullish(),
  max_tokens: z.int().positive().nullish(),
  stream: z.boolean().nullish(),
  tools: z
    .array(z.looseObject({ name: z.string().min(1), type: z.string().nullish(), input_schema: anyObject.nullish() }))
    .nullish(),
  tool_choice: z.looseObject({ type: z.string() }).nullish(),
})

const recorded = ['temperature', 'top_p', 'top_k', 'stop_sequences', 'thinking', 'tool_choice', 'metadata']

type Block = z.infer<typeof block>

function messagesOf(
  role: 'user' | 'assistant' | 'system',
  content: string | readonly Block[],
  i: number,
): readonly Message[] {
  const where = `messages.${i}.content`
  if (role === 'assistant')
    return [assistantOf(typeof content === 'string' ? [{ type: 'text', text: content }] : content, where)]
  if (typeof content === 'string' || role === 'system') return [{ role, content: textOfParts(content, where) }]
  const out: Message[] = []
  let text: Block[] = []
  const flush = () => {
    if (text.length > 0) out.push({ role: 'user', content: textOfParts(text, where) })
    text = []
  }
  for (const one of content) {
    if (one.type !== 'tool_result') {
      text.push(one)
      continue
    }
    flush()
    const result = textOfParts(one.content, where)
    out.push({
      role: 'tool',
      content: result,
      toolUseId: String(one.tool_use_id ?? ''),
      isError: one.is_error === true,
    })
  }
  flush()
  return out
}

function assistantOf(blocks: readonly Block[], where: string): AssistantMessage {
  const thinking: string[] = []
  const text: Block[] = []
  const toolUses: ToolUse[] = []
  for (const one of blocks) {
    if (one.type === 'thinking') thinking.push(String(one.thinking ?? ''))
    else if (one.type === 'tool_use')
      toolUses.push({
        id: String(one.id ?? ''),
        name: String(one.name ?? ''),
        arguments: canonicalJson(one.input ?? {}),
      })
    else if (one.type !== 'redacted_thinking') text.push(one)
  }
  return { role: 'assistant', content: textOfParts(text, where), thinking: thinking.join('\n'), toolUses }
}

const stopReason = ({ finish, message }: Pick<AnswerView, 'finish' | 'message'>): string =>
  message.toolUses.length > 0 ? 'tool_use' : finish === 'length' ? 'max_tokens' : 'end_turn'

const usage = ({
  promptTokens,
  sampledTokens,
  cachedTokens,
}: Pick<AnswerView, 'promptTokens' | 'sampledTokens' | 'cachedTokens'>) => ({
  input_tokens: promptTokens - cachedTokens,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: cachedTokens,
  output_tokens: sampledTokens,
})

function blocksOf({ thinking, content, toolUses }: AssistantMessage): readonly object[] {
  return [
    ...(thinking === '' ? [] : [{ type: 'thinking', thinking, signature: '' }]),
    ...(content === '' ? [] : [{ type: 'text', text: content }]),
    ...toolUses.map(({ id, name, arguments: args }) => ({
      type: 'tool_use',
      id,
      name,
      input: JSON.parse(args) as object,
    })),
  ]
}

const types: Readonly<Record<RefusalKind, string>> = {
  invalid: 'invalid_request_error',
  unauthorized: 'authentication_error',
  forbidden: 'permission_error',
  'not-found': 'not_found_error',
  conflict: 'invalid_request_error',
  'too-large': 'request_too_large',
  slow: 'invalid_request_error',
  busy: 'rate_limit_error',
  internal: 'api_error',
  unavailable: 'overloaded_error',
}

const errorBody = ({ kind, message, code }: GatewayError) => ({
  type: 'error',
  error: { type: types[kind], message, code },
})

export const messages: DialectAdapter = {
  parse(raw) {
    const given = checked(body, raw)
    const system = textOfParts(given.system, 'system')
    const list: Message[] = system === '' ? [] : [{ role: 'system', content: system }]
    for (const [i, one] of given.messages.entries())
      list.push(...messagesOf(one.role, one.content as string | Block[], i))
    checkMessages(list)
    const tools = given.tool_choice?.type === 'none' ? [] : (given.tools ?? [])
    return {
      ...{ dialect: 'messages', model: given.model, messages: list, isStreamed: given.stream === true },
      tools: tools.map((tool, i) => {
        if (tool.type != null && tool.type !== 'custom') throw hostedTool(tool.name, `tools.${i}`)
        if (tool.input_schema == null)
          throw invalid(`tools.${i}.input_schema: expected a JSON schema`, `tools.${i}.input_schema`)
        return schemaOf(tool.name, tool.description, tool.input_schema)
      }),
      ...(given.max_tokens == null ? {} : { maxTokens: given.max_tokens }),
      asked: askedOf(checked(anyObject, raw), recorded),
    }
  },

  answer: view => ({
    ...{ id: `msg_${view.id}`, type: 'message', role: 'assistant', model: view.model },
    ...{ content: blocksOf(view.message), stop_reason: stopReason(view), stop_sequence: null, usage: usage(view) },
  }),

  stream({ id, model, promptTokens }) {
    let index = -1
    let open: Delta['kind'] | undefined
    const send = (type: string, data: object) => event({ type, ...data }, type)
    const stop = () => {
      if (open === undefined) return ''
      open = undefined
      return send('content_block_stop', { index })
    }
    const start = (content_block: object) => send('content_block_start', { index: ++index, content_block })
    const delta = ({ kind, text }: Delta) => {
      let out = ''
      if (open !== kind) {
        out = stop()
        out += start(
          kind === 'content' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' },
        )
        open = kind
      }
      const piece = kind === 'content' ? { type: 'text_delta', text } : { type: 'thinking_delta', thinking: text }
      return out + send('content_block_delta', { index, delta: piece })
    }
    return {
      keepAlive: event({ type: 'ping' }, 'ping'),
      begin() {
        const begun = { promptTokens, sampledTokens: 0, cachedTokens: 0 }
        const message = {
          id: `msg_${id}`,
          type: 'message',
          role: 'assistant',
          model,
          content: [],
          stop_reason: null,
          stop_sequence: null,
          usage: usage(begun),
        }
        return send('message_start', { message })
      },
      delta,
      end(view) {
        let out = stop()
        for (const use of view.message.toolUses) {
          out += start({ type: 'tool_use', id: use.id, name: use.name, input: {} })
          out += send('content_block_delta', {
            index,
            delta: { type: 'input_json_delta', partial_json: use.arguments },
          })
          out += send('content_block_stop', { index })
        }
        out += send('message_delta', {
          delta: { stop_reason: stopReason(view), stop_sequence: null },
          usage: usage(view),
        })
        return out + send('message_stop', {})
      },
      failed: error => event(errorBody(error), 'error'),
    }
  },

  error: errorBody,
}
