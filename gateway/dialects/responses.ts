/**
 * Dialect of OpenAI's responses API.
 *
 * in   bodies of POST /v1/responses        out  response objects, events, errors
 * Invariant: output items come one after the other: reasoning, message, then each function call; every event has the
 * next `sequence_number`. `previous_response_id` names a call of the same session, whose conversation the input
 * continues. Instructions apply to one request only: they are its first message, and `asked.instructions` marks that.
 */
import { z } from 'zod'
import type { AssistantMessage, Message, ToolUse } from '../conversation/message'
import { canonicalArguments } from '../conversation/message'
import { invalid } from '../gatewayError'
import type { Delta } from './deltas'
import {
  type AnswerById,
  type AnswerView,
  anyObject,
  askedOf,
  checked,
  checkMessages,
  type DialectAdapter,
  event,
  type StreamHead,
  samplingFields,
  textOfParts,
} from './dialect'
import { openaiError } from './openaiError'
import { nameIn, partsOf, responseTools, schemasOf } from './responseTools'

const body = z.looseObject({
  model: z.string(),
  ...samplingFields,
  input: z.union([z.string(), z.array(anyObject)]),
  instructions: z.string().nullish(),
  previous_response_id: z.string().nullish(),
  max_output_tokens: z.int().positive().nullish(),
  stream: z.boolean().nullish(),
  background: z.boolean().nullish(),
  tools: responseTools.nullish(),
  tool_choice: z.unknown().optional(),
})

const recorded = [
  'temperature',
  'top_p',
  'tool_choice',
  'text',
  'reasoning',
  'store',
  'parallel_tool_calls',
  'metadata',
  'truncation',
  'include',
]

type Item = Readonly<Record<string, unknown>>

/**
 * Finds what an item reference names: the reasoning, text or function call of an earlier answer. Clients that store
 * responses send ids instead of the items.
 */
function referred(id: string, answerById: AnswerById): Partial<AssistantMessage> | undefined {
  const call = /^fc_(.+)_(\d+)$/.exec(id)
  if (call !== null) {
    const use = answerById(call[1]!)?.toolUses[Number(call[2])]
    return use === undefined ? undefined : { toolUses: [use] }
  }
  const [, kind, of] = /^(rs|msg)_(.+)$/.exec(id) ?? []
  const answer = of === undefined ? undefined : answerById(of)
  if (answer === undefined) return undefined
  return kind === 'rs' ? { thinking: answer.thinking } : { content: answer.content }
}

/** Reads input items. Reasoning, text and function calls that follow one another are one message of the assistant. */
function messagesOf(items: readonly Item[], answerById: AnswerById): readonly Message[] {
  const out: Message[] = []
  const assistant = (more: Partial<AssistantMessage>) => {
    const last = out.at(-1)
    const before: AssistantMessage =
      last?.role === 'assistant' ? last : { role: 'assistant', content: '', thinking: '', toolUses: [] }
    if (before === last) out.pop()
    out.push({
      role: 'assistant',
      content: before.content + (more.content ?? ''),
      thinking: before.thinking + (more.thinking ?? ''),
      toolUses: [...before.toolUses, ...(more.toolUses ?? [])],
    })
  }
  items.forEach((item, i) => {
    const where = `input.${i}`
    switch (item.type ?? 'message') {
      case 'message': {
        const content = textOfParts(item.content, `${where}.content`)
        if (item.role === 'assistant') assistant({ content })
        else if (item.role === 'user') out.push({ role: 'user', content })
        else if (item.role === 'system' || item.role === 'developer') out.push({ role: 'system', content })
        else {
          const expected = 'give user, assistant, system or developer'
          throw invalid(`${where}.role: '${String(item.role)}' is not a role; ${expected}`, `${where}.role`)
        }
        return
      }
      case 'function_call': {
        const use: ToolUse = {
          id: String(item.call_id ?? ''),
          name: nameIn(item.namespace, String(item.name ?? '')),
          arguments: canonicalArguments(String(item.arguments ?? '')),
        }
        assistant({ toolUses: [use] })
        return
      }
      case 'function_call_output': {
        const { output } = item
        const content =
          typeof output === 'string' || Array.isArray(output)
            ? textOfParts(output, `${where}.output`)
            : JSON.stringify(output ?? '')
        out.push({ role: 'tool', content, toolUseId: String(item.call_id ?? ''), isError: null })
        return
      }
      case 'reasoning': {
        const own = textOfParts(item.content, `${where}.content`)
        assistant({ thinking: own === '' ? textOfParts(item.summary, `${where}.summary`) : own })
        return
      }
      case 'item_reference': {
        const part = referred(String(item.id ?? ''), answerById)
        if (part === undefined)
          throw invalid(`Item with id '${String(item.id)}' not found.`, `${where}.id`, 'item_not_found')
        assistant(part)
        return
      }
      default:
        throw invalid(`${where}: items of type '${String(item.type)}' are not supported`, where, 'unsupported_item')
    }
  })
  return out
}

interface Output {
  readonly kind: 'reasoning' | 'message' | 'function_call'
  readonly id: string
  readonly text: string
  readonly use?: ToolUse
}

function outputsOf(id: string, { thinking, content, toolUses }: AssistantMessage): readonly Output[] {
  return [
    ...(thinking === '' ? [] : [{ kind: 'reasoning', id: `rs_${id}`, text: thinking } as const]),
    ...(content === '' && toolUses.length > 0 ? [] : [{ kind: 'message', id: `msg_${id}`, text: content } as const]),
    ...toolUses.map((use, i) => ({ kind: 'function_call', id: `fc_${id}_${i}`, text: use.arguments, use }) as const),
  ]
}

const textPart = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] })

function item({ kind, id, text, use }: Output, status: 'in_progress' | 'completed'): object {
  const done = status === 'completed'
  if (kind === 'reasoning')
    return { id, type: 'reasoning', status, summary: [], content: done ? [{ type: 'reasoning_text', text }] : [] }
  if (kind === 'message')
    return { id, type: 'message', status, role: 'assistant', content: done ? [textPart(text)] : [] }
  return { id, type: 'function_call', status, call_id: use!.id, ...partsOf(use!.name), arguments: done ? text : '' }
}

const responseOf = (head: Pick<StreamHead, 'id' | 'createdMs' | 'model'>, status: string, more: object = {}) => ({
  ...{
    id: `resp_${head.id}`,
    object: 'response',
    created_at: Math.floor(head.createdMs / 1000),
    status,
    model: head.model,
  },
  ...{ error: null, incomplete_details: null, instructions: null, metadata: {}, output: [], parallel_tool_calls: true },
  ...{ tool_choice: 'auto', tools: [], temperature: null, top_p: null, usage: null, store: true },
  ...more,
})

function finished(view: AnswerView) {
  const isCut = view.finish === 'length'
  return responseOf(view, isCut ? 'incomplete' : 'completed', {
    ...(isCut ? { incomplete_details: { reason: 'max_output_tokens' } } : {}),
    output: outputsOf(view.id, view.message).map(one => item(one, 'completed')),
    usage: {
      input_tokens: view.promptTokens,
      input_tokens_details: { cached_tokens: view.cachedTokens },
      output_tokens: view.sampledTokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: view.promptTokens + view.sampledTokens,
    },
  })
}

export const responses: DialectAdapter = {
  parse(raw, answerById) {
    const given = checked(body, raw)
    if (given.background) throw invalid('background: not supported', 'background')
    const own =
      typeof given.input === 'string'
        ? [{ role: 'user' as const, content: given.input }]
        : messagesOf(given.input, answerById)
    const after = given.previous_response_id ?? undefined
    const system: Message[] = given.instructions ? [{ role: 'system', content: given.instructions }] : []
    const list = [...system, ...own]
    checkMessages(list)
    const tools = given.tool_choice === 'none' ? [] : (given.tools ?? [])
    return {
      ...{ dialect: 'responses', model: given.model, messages: list, isStreamed: given.stream === true },
      ...(after === undefined ? {} : { after }),
      tools: schemasOf(tools),
      ...(given.max_output_tokens == null ? {} : { maxTokens: given.max_output_tokens }),
      asked: { ...askedOf(checked(anyObject, raw), recorded), ...(system.length > 0 ? { instructions: true } : {}) },
    }
  },

  answer: finished,

  stream(head) {
    let number = 0
    let index = -1
    let open: Output | undefined
    const send = (type: string, data: object) => event({ type, sequence_number: number++, ...data }, type)
    const place = () => ({ item_id: open!.id, output_index: index })
    const names = { reasoning: 'reasoning_text', message: 'output_text' } as const

    const start = (output: Output): string => {
      open = output
      index++
      const added = send('response.output_item.added', { output_index: index, item: item(output, 'in_progress') })
      if (output.kind === 'function_call') return added
      const part = output.kind === 'message' ? textPart('') : { type: 'reasoning_text', text: '' }
      return added + send('response.content_part.added', { ...place(), content_index: 0, part })
    }
    const stop = (whole: string): string => {
      if (open === undefined) return ''
      const output = { ...open, text: whole }
      let out = ''
      if (output.kind === 'function_call')
        out = send('response.function_call_arguments.done', {
          ...place(),
          name: partsOf(output.use!.name).name,
          arguments: whole,
        })
      else {
        const part = output.kind === 'message' ? textPart(whole) : { type: 'reasoning_text', text: whole }
        out = send(`response.${names[output.kind]}.done`, {
          ...place(),
          content_index: 0,
          text: whole,
          ...(output.kind === 'message' ? { logprobs: [] } : {}),
        })
        out += send('response.content_part.done', { ...place(), content_index: 0, part })
      }
      out += send('response.output_item.done', { output_index: index, item: item(output, 'completed') })
      open = undefined
      return out
    }
    let said = ''
    const delta = ({ kind, text }: Delta): string => {
      const wanted = kind === 'content' ? 'message' : 'reasoning'
      let out = ''
      if (open?.kind !== wanted) {
        out = stop(said)
        said = ''
        out += start({ kind: wanted, id: `${wanted === 'message' ? 'msg' : 'rs'}_${head.id}`, text: '' })
      }
      said += text
      return (
        out +
        send(`response.${names[wanted]}.delta`, {
          ...place(),
          content_index: 0,
          delta: text,
          ...(wanted === 'message' ? { logprobs: [] } : {}),
        })
      )
    }
    return {
      keepAlive: ': keep-alive\n\n',
      begin: () =>
        send('response.created', { response: responseOf(head, 'in_progress') }) +
        send('response.in_progress', { response: responseOf(head, 'in_progress') }),
      delta,
      end(view) {
        let out = ''
        if (index < 0 && view.message.content === '' && view.message.toolUses.length === 0)
          out += start({ kind: 'message', id: `msg_${head.id}`, text: '' })
        out += stop(said)
        for (const output of outputsOf(view.id, view.message).filter(one => one.kind === 'function_call')) {
          out += start(output)
          out += send('response.function_call_arguments.delta', { ...place(), delta: output.text })
          out += stop(output.text)
        }
        const response = finished(view)
        return out + send(view.finish === 'length' ? 'response.incomplete' : 'response.completed', { response })
      },
      failed: error => send('error', { code: error.code, message: error.message, param: error.param ?? null }),
    }
  },

  error: openaiError,
}
