/**
 * Interface of a dialect, which reads requests and writes answers, streams and errors in its own form; and functions
 * that the dialects share.
 *
 * Invariant: a dialect knows neither engines nor the log. The last event of a stream is written by `end`, which is
 * called once the answer is durable, or by `failed`.
 */
import { z } from 'zod'
import type { ToolSchema } from '../../config/toolSchema'
import type { CallFinished } from '../../messages/facts'
import type { AssistantMessage, Message } from '../conversation/message'
import { type GatewayError, invalid } from '../gatewayError'
import type { CallRequest } from '../session/callRequest'
import type { Delta } from './deltas'

export type ParsedRequest = Omit<CallRequest, 'hints' | 'isRetry'> & {
  readonly isStreamed: boolean
  /** True: the client of an OpenAI dialect asked for the usage at the end of the stream. */
  readonly withUsage?: boolean
  /** Id of the answer whose conversation the request's messages continue (`previous_response_id` of Responses). */
  readonly after?: string
}

/** An answer of the model, with the fields of the call that a dialect writes into its reply. */
export interface AnswerView {
  /** Id of the answer, unique in the run, without the dialect's prefix. */
  readonly id: string
  readonly createdMs: number
  /** Model that the client named. */
  readonly model: string
  readonly message: AssistantMessage
  readonly finish: CallFinished['finish']
  readonly promptTokens: number
  readonly sampledTokens: number
  readonly cachedTokens: number
}

export type StreamHead = Pick<AnswerView, 'id' | 'createdMs' | 'model' | 'promptTokens'>

export interface StreamWriter {
  /** Events before the first text. */
  begin(): string
  delta(delta: Delta): string
  /** Remaining events, the last one included. */
  end(answer: AnswerView): string
  /** Event of an error after the stream began; it is the stream's last. */
  failed(error: GatewayError): string
  /** Text that is sent at a fixed interval until the answer is complete, so that the connection stays open. */
  readonly keepAlive: string
}

/** Finds an answer that the session gave earlier, by the id that it had in the dialect, without that id's prefix. */
export type AnswerById = (id: string) => AssistantMessage | undefined

export interface DialectAdapter {
  /** @throws GatewayError kind `invalid` */
  parse(body: unknown, answerById: AnswerById): ParsedRequest
  answer(view: AnswerView): object
  stream(head: StreamHead, request: ParsedRequest): StreamWriter
  error(error: GatewayError): object
}

export const event = (data: object, name?: string): string =>
  `${name === undefined ? '' : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`

/** Sampling parameters that all dialects accept. They apply only to evaluation sessions of a gateway outside a run. */
export const samplingFields = {
  temperature: z.number().min(0).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
}

/** Checks a body; the error names the first field that is wrong. */
export function checked<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const path = issue!.path.join('.')
  throw invalid(`${path === '' ? 'the body' : path}: ${issue!.message}`, path === '' ? undefined : path)
}

/** Joins the text parts of a content. @throws GatewayError for images, audio, files and unknown parts */
export function textOfParts(content: unknown, where: string): string {
  if (content === null || content === undefined) return ''
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw invalid(`${where}: expected a text or a list of parts`, where)
  return content
    .map((part: unknown): string => {
      if (typeof part === 'string') return part
      const { type, text, refusal } = (part ?? {}) as { type?: unknown; text?: unknown; refusal?: unknown }
      if (typeof text === 'string' && ['text', 'input_text', 'output_text', 'summary_text'].includes(String(type)))
        return text
      if (type === 'refusal' && typeof refusal === 'string') return refusal
      throw invalid(
        `${where}: parts of type '${String(type)}' are not supported; only text is`,
        where,
        'unsupported_content',
      )
    })
    .join('')
}

/** Makes the error for a tool that the vendor's service would run itself. */
export const hostedTool = (name: string, where: string): GatewayError =>
  invalid(
    `the tool '${name}' is run by its vendor's service, which this gateway does not host: offer a function instead`,
    where,
    'unsupported_tool',
  )

/** Makes the error for a function tool without a name. */
export const unnamedFunction = (where: string): GatewayError =>
  invalid(`${where}: a tool of type 'function' needs a name`, where)

export const schemaOf = (name: string, description: unknown, parameters: unknown): ToolSchema => ({
  name,
  description: typeof description === 'string' ? description : '',
  parameters: (parameters ?? { type: 'object', properties: {} }) as ToolSchema['parameters'],
})

/** Checks that an engine can continue a conversation. @throws GatewayError if it is empty or the assistant's is last */
export function checkMessages(messages: readonly Message[]): void {
  const last = messages.at(-1)
  if (last === undefined) throw invalid('messages: expected at least one message', 'messages')
  if (last.role === 'assistant')
    throw invalid(
      "messages: the last message is the assistant's; continuing an answer that the client began is not supported",
      'messages',
      'prefill',
    )
}

/** Picks the given fields of a body, which are recorded as the parameters that the client asked for. */
export function askedOf(body: Readonly<Record<string, unknown>>, fields: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(
    fields.filter(name => body[name] !== undefined && body[name] !== null).map(name => [name, body[name]]),
  )
}

export const anyObject = z.record(z.string(), z.unknown())
