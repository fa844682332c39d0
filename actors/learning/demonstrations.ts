/**
 * Renders the conversations of a cold start in batches of `perCall`.
 *
 * in   conversations, the renderer        out  examples (token ids and mask), one after another
 * Invariant: at most the examples of two calls of the renderer are in memory: while the caller reads the examples of
 * one call, the renderer works on the next. Conversations longer than the context are left out; a warning says how
 * many.
 */
import type { Renderer } from '../../backends/renderer/renderer'
import type { SftExample } from '../../backends/trainer/trainer'
import type { ToolSchema } from '../../config/toolSchema'
import type { ChatMessage } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'

export interface DemonstrationsOptions {
  readonly renderer: Pick<Renderer, 'conversations'>
  readonly conversations: readonly (readonly ChatMessage[])[]
  readonly tools: readonly ToolSchema[]
  readonly contextTokens: number
  readonly log: Log
}

/** Upper bound on the conversations in one call of the renderer. */
const perCall = 256

/** Renders the demonstrations batch by batch. @throws TroupeError config.no_data if no conversation fits the context */
export async function* renderedDemonstrations(options: DemonstrationsOptions): AsyncGenerator<SftExample> {
  const { renderer, conversations, tools, contextTokens, log } = options
  let kept = 0
  const ask = (at: number) => {
    const asked = renderer.conversations(conversations.slice(at, at + perCall), tools)
    asked.catch(() => {}) // prevents an unhandled rejection: the loop handles it, unless the caller has stopped reading
    return asked
  }
  let next = conversations.length > 0 ? ask(0) : undefined
  for (let at = perCall; next !== undefined; at += perCall) {
    const examples = await next
    next = at < conversations.length ? ask(at) : undefined
    for (const example of examples) {
      if (example.tokens.length > contextTokens) continue
      kept++
      yield example
    }
  }
  const left = conversations.length - kept
  if (kept === 0) {
    throw new TroupeError('config.no_data', {
      boundary: 'config',
      retriable: false,
      message: `no conversation of the cold start fits a context of ${contextTokens} tokens; the recipe gives ${conversations.length} conversations`,
      hint: 'raise limits.contextTokens, give conversations that fit it, or leave out the section coldStart',
    })
  }
  if (left > 0)
    log.warn({ left, of: conversations.length, contextTokens }, 'conversations longer than the context are skipped')
}
