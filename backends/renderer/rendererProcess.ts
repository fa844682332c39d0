/**
 * A Renderer in a process of its own: the chat template and the tokenizer of a model directory.
 *
 * in   messages, tools, tool responses, texts, token ids       out  text, token ids, masks
 * Invariant: every call has a deadline. Calls that decode or encode are repeated if they are late, up to 5 attempts
 * (breaker.ts), so that no generation is lost because a slow process did not decode its text in time; other calls are
 * not repeated. If the process cannot render its input, such as when a template refuses it, the error is
 * `render.refused`, with the reason.
 */

import type { ToolSchema } from '../../config/toolSchema'
import type { ChatMessage } from '../../messages/facts'
import { batchCalls } from '../../runtime/batchCalls'
import { TroupeError } from '../../runtime/errors'
import { bytesOfTokens, tokensOfBytes } from '../../runtime/tokenBytes'
import { type PolicyProcessOptions, startPolicyProcess } from '../policyProcess'
import { breaker } from './breaker'
import { openCalls } from './calls'
import type { Rendered, Renderer } from './renderer'

export type RendererOptions = Omit<PolicyProcessOptions, 'serve' | 'options'> & { readonly timeoutMs?: number }

interface Reply {
  readonly text: string
  readonly tokens: Buffer
  readonly mask: Buffer
}

type Demonstration = Rendered & { readonly mask: Uint8Array }

// Number of conversations per call, so that a reply stays far below the message limit and a call meets its deadline.
const conversationsPerCall = 256
// Upper bound on the turns whose tool responses one call renders. A call costs ten times what rendering one turn's
// responses costs, so turns that wait are batched.
const toolResponsesPerCall = 128

// Upper bounds on the prompts, and on the decodes or encodes, of one call. A prompt may have 100,000 tokens.
const promptsPerCall = 16
const textsPerCall = 64
// Upper bound on the decodeList and encodeList calls in flight together. Other calls do not count.
const callsAtOnce = 2
// Upper bound on the attempts at a decodeList or encodeList call that is late each time.
const mostTries = 5

/** Starts the renderer. @throws TroupeError process.start_failed if the model has no tokenizer or no chat template */
export async function startRenderer(
  options: RendererOptions,
): Promise<Renderer & { readonly pid: number; readonly lost: Promise<Error> }> {
  const { timeoutMs = 60_000, ...rest } = options
  const { client, close, pid, lost } = await startPolicyProcess({ ...rest, serve: 'render' })
  const calls = openCalls(client, lost)
  const call = <R>(name: string, request: object) => calls.call<R>(name, request, timeoutMs)

  const isLate = (thrown: unknown) => thrown instanceof TroupeError && thrown.code === 'codec.timeout'
  const inTurn = breaker({ most: callsAtOnce, tries: mostTries, isLate })
  const single = <R>(method: string, request: object) => inTurn(() => call<R>(method, request))

  async function conversations(
    lists: readonly (readonly ChatMessage[])[],
    tools: readonly ToolSchema[],
  ): Promise<readonly Demonstration[]> {
    const rendered: Demonstration[] = []
    for (let at = 0; at < lists.length; at += conversationsPerCall) {
      const part = lists.slice(at, at + conversationsPerCall).map(messages => ({ messages }))
      const reply = await call<{ items: Reply[] }>('conversations', { conversations: part, toolsJson: json(tools) })
      for (const item of reply.items) rendered.push({ ...renderedOf(item), mask: new Uint8Array(item.mask) })
    }
    return rendered
  }

  const isOfOne = (error: Error) => error instanceof TroupeError && error.code === 'render.refused'
  const toolResponses = batchCalls<readonly string[], Rendered>(
    async lists => {
      const items = lists.map(responses => ({ responses }))
      return (await call<{ items: Reply[] }>('toolResponsesList', { items })).items.map(renderedOf)
    },
    { most: toolResponsesPerCall, isOfOne },
  )
  const prompts = batchCalls<object, Rendered>(
    async items => (await call<{ items: Reply[] }>('promptList', { items })).items.map(renderedOf),
    { most: promptsPerCall, isOfOne },
  )
  const decode = batchCalls<Int32Array, string>(
    async lists => (await single<{ texts: string[] }>('decodeList', { items: lists.map(bytesOfTokens) })).texts,
    { most: textsPerCall, isOfOne },
  )
  const encode = batchCalls<string, Int32Array>(
    async texts => (await single<{ items: Buffer[] }>('encodeList', { texts })).items.map(tokensOfBytes),
    { most: textsPerCall, isOfOne },
  )

  return {
    pid,
    lost,
    prompt: (messages, tools) => prompts({ messages, toolsJson: json(tools) }),
    toolResponses,
    conversations,
    decode,
    async tokenBytes() {
      const { bytes, ends } = await call<{ bytes: Buffer; ends: Buffer }>('tokenBytes', {})
      return ends.length === 0 ? undefined : { bytes, ends: tokensOfBytes(ends) }
    },
    encode,
    describe: async () => {
      type Info = { stopTokens: number[]; digest: string; vocabulary: number }
      const { stopTokens, digest, vocabulary } = await call<Info>('describe', {})
      return { stopTokens, digest, vocabulary }
    },
    close() {
      calls.close()
      return close()
    },
  }
}

const json = (tools: readonly ToolSchema[]) => (tools.length === 0 ? '' : JSON.stringify(tools))
const renderedOf = (reply: Reply): Rendered => ({ text: reply.text, tokens: tokensOfBytes(reply.tokens) })
