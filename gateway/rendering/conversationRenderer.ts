/**
 * Renders conversations of agents: a whole conversation, or the messages that follow a turn that the model sampled.
 *
 * in   canonical messages, tools        out  token ids, which end with the template's generation prompt
 * Invariant: tokens that a turn sampled are never rendered again: `following` and `tailOfWhole` return only what comes
 * after them. `tailOfWhole` returns undefined if the template rewrote history (dropped thinking, say). `following` does
 * not notice that, so callers use it only if `keepsHistory`.
 */
import type { Rendered, Renderer } from '../../backends/renderer/renderer'
import type { ToolSchema } from '../../config/toolSchema'
import type { ChatMessage } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'

export type TextRenderer = Pick<Renderer, 'prompt' | 'encode' | 'decode' | 'tokenBytes' | 'describe'>

export interface ConversationRenderer {
  /** Renders a whole conversation and the generation prompt. */
  whole(messages: readonly ChatMessage[], tools: readonly ToolSchema[]): Promise<Rendered>
  /**
   * Renders messages that follow a turn, and the next generation prompt. `isEnded`: the turn ended with its stop token;
   * else the result begins with one. undefined: the template renders the messages in a form that cannot be appended.
   */
  following(messages: readonly ChatMessage[], isEnded: boolean): Promise<Int32Array | undefined>
  /**
   * True if the template renders earlier turns as they were sampled, whatever follows them, so that `following` returns
   * the same tokens as a rendering of the whole conversation. False: callers use `tailOfWhole`.
   */
  readonly keepsHistory: boolean
  /** True if the generation prompt ends with the opening tag of the model's thinking. */
  readonly opensThinking: boolean
  /**
   * Returns the tokens that follow `recorded` in `whole`, a rendering of the whole conversation; undefined if `whole`
   * does not begin with the text of `recorded`, since the template rewrote earlier messages, or nothing follows it.
   */
  tailOfWhole(whole: Rendered, recorded: Int32Array): Promise<Int32Array | undefined>
}

/** Placeholder for the model's turn: it shows which text the template puts around a turn. */
const probe = '\u2063troupe-probe\u2063'
const asked: ChatMessage = { role: 'user', content: 'u' }
const turn = (content: string): ChatMessage => ({ role: 'assistant', content })

/**
 * Makes the renderer: renders short test conversations to learn which text the template puts around a turn.
 * @throws TroupeError render.refused if the template cannot render a turn of the model
 */
export async function conversationRenderer(renderer: TextRenderer): Promise<ConversationRenderer> {
  const { stopTokens } = await renderer.describe()
  const stops = await Promise.all(stopTokens.map(token => renderer.decode(Int32Array.of(token))))
  const sample = await renderer.prompt([asked, turn(probe), asked], [])
  const { text } = sample
  const at = text.indexOf(probe)
  const stop = at < 0 ? undefined : stops.find(one => one !== '' && text.startsWith(one, at + probe.length))
  if (stop === undefined) {
    throw new TroupeError('render.refused', {
      boundary: 'codec',
      retriable: false,
      message: `the chat template does not write a turn of the model as its text and then a stop token (${stops.join(', ')})`,
      hint: 'give a template that appends: model.template of the recipe, or without a recipe --template hermes',
    })
  }
  const { text: generation } = await renderer.prompt([asked], [])
  const opensThinking = generation.trimEnd().endsWith('<think>')
  const keepsHistory = await rendersThinking(renderer)
  const head = text.slice(0, at + probe.length)
  const headTokens = await tokensBefore(renderer, sample, head, stop, stopTokens[stops.indexOf(stop)]!)

  return {
    keepsHistory,
    opensThinking,
    whole: (messages, tools) => renderer.prompt(messages, tools),
    async following(messages, isEnded) {
      const { text: whole, tokens } = await renderer.prompt([asked, turn(probe), ...messages], [])
      const end = whole.indexOf(probe) + probe.length
      if (end < probe.length || !whole.startsWith(stop, end)) return undefined
      // The tokens after a special token do not depend on what stands before it, so the rendering's own tokens are
      // used.
      if (headTokens !== undefined && whole.startsWith(head) && tokens[headTokens.length - 1] === headTokens.at(-1))
        return tokens.slice(isEnded ? headTokens.length : headTokens.length - 1)
      return renderer.encode(whole.slice(isEnded ? end + stop.length : end))
    },
    async tailOfWhole({ text: whole }, recorded) {
      const before = await renderer.decode(recorded)
      return whole.startsWith(before) && whole.length > before.length
        ? renderer.encode(whole.slice(before.length))
        : undefined
    },
  }
}

/**
 * Returns the tokens of a rendering up to the stop token after the probe. Returns undefined if the text after that
 * token, encoded by itself, gives other tokens: then the tokens after a special token depend on the text before it.
 */
async function tokensBefore(
  renderer: TextRenderer,
  { text, tokens }: Rendered,
  head: string,
  stop: string,
  stopToken: number,
): Promise<Int32Array | undefined> {
  const stopsBefore = head.split(stop).length - 1
  const places = [...tokens.keys()].filter(i => tokens[i] === stopToken)
  const place = places[stopsBefore]
  if (place === undefined) return undefined
  const rest = await renderer.encode(text.slice(head.length + stop.length))
  const isSame = rest.length === tokens.length - place - 1 && rest.every((token, i) => token === tokens[place + 1 + i])
  return isSame ? tokens.slice(0, place + 1) : undefined
}

/**
 * True if the template keeps the thinking of earlier turns, both before tool responses and before a new user message.
 */
async function rendersThinking(renderer: TextRenderer): Promise<boolean> {
  const turns = [0, 1].map(i => `<think>\n${probe}${i}\n</think>\n\n${probe}answer ${i}`)
  const messages: ChatMessage[] = [asked, turn(turns[0]!), { role: 'tool', content: 'r' }, turn(turns[1]!), asked]
  const { text } = await renderer.prompt(messages, []).catch(() => ({ text: '' }))
  return turns.every(one => text.includes(one))
}
