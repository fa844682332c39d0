/**
 * Places a request in its session: the call that it continues, and the tokens that it adds to that call's.
 *
 * in   a session and a request        out  parent, branch and context of a new call
 * Invariant: the context begins with the tokens of its path in the tree, as they were recorded; a request whose
 * template rewrites them begins a branch of its own.
 */
import { pathTo } from '../../kernels'
import type { CallStarted, ChatMessage } from '../../messages/facts'
import { concatArrays } from '../../runtime/concatArrays'
import { withoutEnd } from '../conversation/answer'
import type { Placement } from '../conversation/conversationIndex'
import { digestOf, type Message } from '../conversation/message'
import { chatMessage } from '../rendering/chatMessage'
import type { ConversationRenderer } from '../rendering/conversationRenderer'
import type { CallRequest } from './callRequest'
import { messagesOf, type SessionState } from './session'

export interface RenderingOptions {
  readonly renderer: ConversationRenderer
  readonly encode: (text: string) => Promise<Int32Array>
}

export interface Placed {
  readonly parent: number | null
  readonly branch: CallStarted['branch']
  readonly messages: readonly Message[]
  readonly tokens: Int32Array
  readonly context: Int32Array
}

/** Finds the call that a request continues. @param tools canonical JSON of the request's tools */
export function placementOf(session: SessionState, request: CallRequest, tools: string): Placement {
  const { dialect, messages } = request
  if (dialect !== 'completions') return session.index.place({ tools, messages })
  const branch = session.calls.tree.nodes.size === 0 ? 'first' : 'new-conversation'
  // The digest is of the exact prompt: white space, which a conversation's digest leaves out, changes its tokens.
  return { parent: null, held: 0, branch, digests: digestOf(messages[0]!.content) }
}

/** Renders a request at its place. */
export async function rendered(
  ways: RenderingOptions,
  session: SessionState,
  request: CallRequest,
  { parent, held, branch }: Placement,
): Promise<Placed> {
  const { renderer, encode } = ways
  const { messages } = request
  if (request.dialect === 'completions') {
    const tokens = await encode(messages[0]!.content)
    return { parent, branch, messages, tokens, context: tokens }
  }
  if (parent !== null) {
    const tail = messages.slice(held)
    const tokens = await tailOf(renderer, session, request, parent, tail)
    if (tokens !== undefined)
      return { parent, branch, messages: tail, tokens, context: contextAfter(session, parent, tokens) }
  }
  const { tokens } = await renderer.whole(messages.map(chatMessage), request.tools)
  return { parent: null, branch: parent === null ? branch : 'template', messages, tokens, context: tokens }
}

/** Renders what follows a recorded call; undefined if the template does not append it. */
async function tailOf(
  renderer: ConversationRenderer,
  session: SessionState,
  request: CallRequest,
  parent: number,
  tail: readonly Message[],
): Promise<Int32Array | undefined> {
  const node = session.calls.tree.nodes.get(parent)!
  if (renderer.keepsHistory && !tail.some(one => one.role === 'assistant' || one.role === 'system')) {
    const tokens = await renderer.following(tail.map(chatMessage), node.finished!.finish === 'stop')
    if (tokens !== undefined) return tokens
  }
  // The turns that the model sampled are rendered as it wrote them, not as the client sent them back.
  const recorded = pathTo(session.calls.tree, parent).flatMap(({ started, finished }): ChatMessage[] => [
    ...messagesOf(started).map(chatMessage),
    { role: 'assistant', content: withoutEnd(finished!.text) },
  ])
  const whole = await renderer.whole([...recorded, ...tail.map(chatMessage)], request.tools)
  return renderer.tailOfWhole(whole, contextAfter(session, parent, new Int32Array()))
}

/** Context tokens of a call: the tokens and answers of the calls above it in the tree, then its own tokens. */
export function contextOf(session: SessionState, started: CallStarted): Int32Array {
  return started.parent === null ? started.tokens : contextAfter(session, started.parent, started.tokens)
}

/** Joins the context of a recorded call, its answer, and the tokens `more`. */
function contextAfter(session: SessionState, call: number, more: Int32Array): Int32Array {
  const path = pathTo(session.calls.tree, call)
  return concatArrays(Int32Array, [...path.flatMap(node => [node.started.tokens, node.finished!.tokens]), more])
}
