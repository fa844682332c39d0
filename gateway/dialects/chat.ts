/**
 * Dialect of OpenAI's chat completions.
 *
 * in   bodies of POST /v1/chat/completions        out  chat.completion objects, chunks, errors
 * Invariant: a stream sends the role, then text and reasoning as they are sampled, then whole tool calls, the finish
 * reason, the usage if it was asked for, and `[DONE]`. A stream whose call fails ends with an error instead.
 */
import { z } from 'zod'
import type { AssistantMessage, Message } from '../conversation/message'
import { canonicalArguments } from '../conversation/message'
import { invalid } from '../gatewayError'
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
  unnamedFunction,
} from './dialect'
import { openaiError } from './openaiError'

const body = z.looseObject({
  model: z.string(),
  ...samplingFields,
  messages: z.array(z.looseObject({ role: z.string() })),
  n: z.number().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().positive().nullish(),
  max_completion_tokens: z.int().positive().nullish(),
  tools: z
    .array(z.looseObject({ type: z.string(), function: z.looseObject({ name: z.string().min(1) }).optional() }))
    .nullish(),
  tool_choice: z.unknown().optional(),
})

const toolCallList = z
  .array(
    z.looseObject({
      id: z.string().optional(),
      function: z.looseObject({ name: z.string(), arguments: z.string().optional() }),
    }),
  )
  .nullish()

const recorded = [
  'temperature',
  'top_p',
  'stop',
  'seed',
  'tool_choice',
  'response_format',
  'presence_penalty',
  'frequency_penalty',
  'logprobs',
  'top_logprobs',
  'reasoning_effort',
  'parallel_tool_calls',
  'user',
]

function messageOf(raw: Readonly<Record<string, unknown>>, i: number): Message {
  const where = `messages.${i}.content`
  switch (raw.role) {
    case 'system':
    case 'developer':
      return { role: 'system', content: textOfParts(raw.content, where) }
    case 'user':
      return { role: 'user', content: textOfParts(raw.content, where) }
    case 'tool':
    case 'function':
      return {
        role: 'tool',
        content: textOfParts(raw.content, where),
        toolUseId: String(raw.tool_call_id ?? ''),
        isError: null,
      }
    case 'assistant':
      return assistantOf(raw, i)
    default:
      throw invalid(
        `messages.${i}.role: '${String(raw.role)}' is not a role; give system, developer, user, assistant, tool or function`,
        `messages.${i}.role`,
      )
  }
}

function assistantOf(raw: Readonly<Record<string, unknown>>, i: number): AssistantMessage {
  const uses = raw.tool_calls == null ? [] : checked(toolCallList, raw.tool_calls)
  const thinking = raw.reasoning_content ?? raw.reasoning
  return {
    role: 'assistant',
    content: textOfParts(raw.content, `messages.${i}.content`),
    thinking: typeof thinking === 'string' ? thinking : '',
    toolUses: (uses ?? []).map(use => ({
      id: use.id ?? '',
      name: use.function.name,
      arguments: canonicalArguments(use.function.arguments ?? ''),
    })),
  }
}

export const finishReason = ({ finish, message }: Pick<AnswerView, 'finish' | 'message'>): string =>
  message.toolUses.length > 0 ? 'tool_calls' : finish

export const openaiUsage = ({ promptTokens, sampledTokens, cachedTokens }: AnswerView) => ({
  prompt_tokens: promptTokens,
  completion_tokens: sampledTokens,
  total_tokens: promptTokens + sampledTokens,
  prompt_tokens_details: { cached_tokens: cachedTokens },
})

/** Tool calls of a message in the shape of the chat API. */
export const toolCalls = (message: AssistantMessage) =>
  message.toolUses.map(({ id, name, arguments: args }) => ({
    id,
    type: 'function' as const,
    function: { name, arguments: args },
  }))

const seconds = (ms: number) => Math.floor(ms / 1000)

export const chat: DialectAdapter = {
  parse(raw) {
    const given = checked(body, raw)
    if (given.n != null && given.n !== 1)
      throw invalid('n: only 1 is supported; send the request again for another sample', 'n', 'unsupported_n')
    const tools = given.tool_choice === 'none' ? [] : (given.tools ?? [])
    const messages = given.messages.map((one, i) => messageOf(one, i))
    checkMessages(messages)
    const maxTokens = given.max_completion_tokens ?? given.max_tokens
    return {
      dialect: 'chat',
      model: given.model,
      messages,
      isStreamed: given.stream === true,
      withUsage: given.stream_options?.include_usage === true,
      tools: tools.map((tool, i) => {
        if (tool.type !== 'function') throw hostedTool(tool.type, `tools.${i}`)
        if (tool.function === undefined) throw unnamedFunction(`tools.${i}.function`)
        return schemaOf(tool.function.name, tool.function.description, tool.function.parameters)
      }),
      maxTokens: maxTokens ?? undefined,
      asked: askedOf(checked(anyObject, raw), recorded),
    }
  },

  answer(view) {
    const { message } = view
    const calls = toolCalls(message)
    return {
      id: `chatcmpl-${view.id}`,
      object: 'chat.completion',
      created: seconds(view.createdMs),
      model: view.model,
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: message.content === '' && calls.length > 0 ? null : message.content,
            refusal: null,
            ...(message.thinking === '' ? {} : { reasoning_content: message.thinking }),
            ...(calls.length === 0 ? {} : { tool_calls: calls }),
          },
          logprobs: null,
          finish_reason: finishReason(view),
        },
      ],
      usage: openaiUsage(view),
    }
  },

  stream({ id, createdMs, model }, request) {
    const chunk = (delta: object, finish: string | null = null, more: object = {}) =>
      event({
        id: `chatcmpl-${id}`,
        object: 'chat.completion.chunk',
        created: seconds(createdMs),
        model,
        choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
        ...(request.withUsage ? { usage: null } : {}),
        ...more,
      })
    return {
      keepAlive: ': keep-alive\n\n',
      begin: () => chunk({ role: 'assistant', content: '' }),
      delta: ({ kind, text }) => chunk(kind === 'content' ? { content: text } : { reasoning_content: text }),
      end(view) {
        const calls = toolCalls(view.message).map((call, index) => chunk({ tool_calls: [{ index, ...call }] }))
        const usage = request.withUsage ? [chunk({}, null, { choices: [], usage: openaiUsage(view) })] : []
        return [...calls, chunk({}, finishReason(view)), ...usage, 'data: [DONE]\n\n'].join('')
      },
      failed: error => event(openaiError(error)),
    }
  },

  error: openaiError,
}
