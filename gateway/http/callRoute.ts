/**
 * Answers one call in its dialect, whole or as a stream.
 *
 * in   a parsed request, a session
 * out  the answer or an error; `call.delivered` if no connection took the answer, or if a retry took it after all
 * Invariant: an answer's last byte is sent only after `call.finished` is durable. When a client disconnects, its call
 * continues, and the client's retry gets the answer. An answer that no connection took is recorded as not delivered,
 * unless this process ends before that.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { TokenText } from '../../backends/renderer/tokenText'
import type { CallFinished } from '../../messages/facts'
import { type Effects, everyOn } from '../../runtime/effects'
import type { AssistantMessage, Message } from '../conversation/message'
import { Deltas } from '../dialects/deltas'
import type { AnswerView, DialectAdapter, ParsedRequest } from '../dialects/dialect'
import { invalid, refusalOf } from '../gatewayError'
import type { AtPoint } from '../session/callPoints'
import type { Calls, LiveCall } from '../session/calls'
import { answerId, answerTo, callOf, historyOf, type SessionState } from '../session/session'
import type { Sessions } from '../session/sessions'
import { headerOf, retryHeaders, sendJson } from './exchange'
import type { JsonBodies } from './jsonBodies'

export interface CallRouteParts {
  readonly calls: Calls
  readonly sessions: Sessions
  readonly bodies: Pick<JsonBodies, 'read' | 'release'>
  readonly fx: Effects
  readonly tokenText: (give: (text: string) => void) => TokenText
  readonly keepAliveMs: number
  readonly atPoint?: AtPoint
}

/**
 * By call: number of responses that still wait for its answer. One response that gets the answer makes it delivered;
 * only the last that waits can record that none got it.
 */
const waiting = new WeakMap<LiveCall, number>()

export async function answerCall(
  parts: CallRouteParts,
  dialect: DialectAdapter,
  parsed: ParsedRequest,
  session: SessionState,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const lane = headerOf(request, 'x-session-id')
  const said = headerOf(request, 'x-troupe-label')
  const parentLane = headerOf(request, 'x-parent-session-id')
  const retries = Number(headerOf(request, 'x-stainless-retry-count') ?? 0)
  const { isStreamed, after, dialect: name, model, tools, maxTokens, asked } = parsed
  // One plain literal without spreads: callFacts.ts says why.
  const call = await parts.calls.ask(session, {
    dialect: name,
    model,
    tools,
    messages: after === undefined ? parsed.messages : following(historyAfter(session, after), parsed),
    maxTokens,
    asked,
    hints: { said, lane, parentLane },
    isRetry: retries > 0 || headerOf(request, 'x-troupe-retry') !== undefined,
  })
  parts.bodies.release(response)
  waiting.set(call, (waiting.get(call) ?? 0) + 1)
  let isDelivered = false
  try {
    if (isStreamed) await stream(parts, dialect, parsed, call, response)
    else sendJson(response, 200, dialect.answer(viewOf(call, await call.finished)))
    await parts.atPoint?.('answer.written')
    isDelivered = await flushed(response)
    await parts.atPoint?.('answer.flushed')
  } finally {
    const others = waiting.get(call)! - 1
    waiting.set(call, others)
    await noteDelivery(parts, call, isDelivered, others)
  }
}

/** Puts a request's messages behind a history, except for its instructions, which come first. */
function following(history: readonly Message[], { messages, asked }: Pick<ParsedRequest, 'messages' | 'asked'>) {
  const instructions = asked.instructions === true ? 1 : 0
  return [...messages.slice(0, instructions), ...history, ...messages.slice(instructions)]
}

/**
 * Returns the conversation up to the call that an answer's id names. @throws GatewayError if the session has no such
 * answer
 */
function historyAfter(session: SessionState, id: string): readonly Message[] {
  const call = callOf(session, id.replace(/^resp_/, ''))
  if (call !== undefined) return historyOf(session, call)
  throw invalid(`Previous response with id '${id}' not found.`, 'previous_response_id', 'previous_response_not_found')
}

/** Records that no response got an answer, or that a retry got it after all. Failed calls have no delivery. */
async function noteDelivery(
  { sessions, fx }: CallRouteParts,
  { session, call }: LiveCall,
  delivered: boolean,
  others: number,
): Promise<void> {
  const node = session.calls.tree.nodes.get(call)
  if (node?.finished == null || node.finished.finish === 'failed' || node.delivered === delivered) return
  if (!delivered && others > 0) return
  await sessions.write([{ type: 'call.delivered', at: fx.now(), trajectory: session.id, call, delivered }])
}

/** Resolves with true when all of the response was handed to the connection, false if that was closed before. */
function flushed(response: ServerResponse): Promise<boolean> {
  if (response.writableFinished) return Promise.resolve(true)
  if (response.destroyed || response.closed) return Promise.resolve(false)
  return new Promise(resolve => {
    response.once('finish', () => resolve(true))
    response.once('close', () => resolve(response.writableFinished))
  })
}

async function stream(
  parts: CallRouteParts,
  dialect: DialectAdapter,
  parsed: ParsedRequest,
  call: LiveCall,
  response: ServerResponse,
): Promise<void> {
  const { started } = call
  const head = {
    id: answerId(started),
    createdMs: started.at,
    model: started.model,
    promptTokens: started.contextTokens,
  }
  const writer = dialect.stream(head, parsed)
  const deltas = new Deltas({ hasTools: parsed.tools.length > 0, opensThinking: started.opensThinking === true })
  // Does not wait for a slow client: an answer has at most `limits.responseTokens` tokens, so little is buffered.
  const send = (text: string) => {
    if (!response.destroyed) response.write(text)
  }
  let isBegun = false
  const begin = () => {
    if (isBegun) return
    isBegun = true
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' })
    send(writer.begin())
  }
  const stopKeepAlive = everyOn(parts.fx, parts.keepAliveMs, () => {
    begin()
    send(writer.keepAlive)
  })
  const text = parts.tokenText(piece => {
    begin()
    for (const delta of deltas.push(piece)) send(writer.delta(delta))
  })
  const unfollow = call.follow(tokens => text.add(tokens))
  try {
    const finished = await call.finished
    await text.end()
    begin()
    const view = viewOf(call, finished)
    for (const delta of deltas.end(view.message)) send(writer.delta(delta))
    if (!response.destroyed) response.end(writer.end(view))
  } catch (thrown) {
    // Before the first byte, the error is an HTTP status; after it, an event of the stream.
    if (!isBegun) throw thrown
    if (!response.destroyed) response.end(writer.failed(refusalOf(thrown)))
  } finally {
    unfollow()
    stopKeepAlive()
  }
}

/** Finds the session's answer that an id without its dialect's prefix names. */
export function answerById(session: SessionState, id: string): AssistantMessage | undefined {
  const call = callOf(session, id)
  return call === undefined ? undefined : answerTo(session, call)
}

function viewOf(call: LiveCall, finished: CallFinished): AnswerView {
  const { session, started } = call
  return {
    id: answerId(started),
    createdMs: started.at,
    model: started.model,
    finish: finished.finish,
    message: answerTo(session, call.call)!,
    promptTokens: started.contextTokens,
    sampledTokens: finished.tokens.length,
    cachedTokens: Math.min(finished.cachedTokens, started.contextTokens),
  }
}

export function sendError(dialect: Pick<DialectAdapter, 'error'>, thrown: unknown, response: ServerResponse): void {
  const error = refusalOf(thrown)
  if (response.headersSent) response.destroy()
  else sendJson(response, error.status, dialect.error(error), retryHeaders(error))
}
