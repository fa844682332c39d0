/**
 * An engine that answers from a script, one token for each character, and notes what it sampled under which context.
 *
 * in   contexts        out  the script's text and a stop token; a logprob that is different for each token sampled
 * Invariant: `sampled` has every token of every answer that was given, in order. Tokens are streamed one by one.
 */
import { type Engine, type GenerateRequest, type Generation, GenerationLost } from '../../../backends/engines/engine'
import type { StartableEngine } from '../../../gateway/engines/enginePool'
import { engineId, policyVersion } from '../../../messages/ids'
import { decodeChars, encodeChars } from './charRenderer'

export interface Sampled {
  readonly requestId: string
  readonly context: Int32Array
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  readonly version: number
}

export interface ScriptedEngine extends StartableEngine {
  readonly asked: GenerateRequest[]
  readonly sampled: Sampled[]
  /** Policy version of the next answers. */
  version: number
}

/** Text of an answer, without its end. `turn`: number of the answer, 0-based. */
export type Script = (context: string, turn: number, request: GenerateRequest) => string | Promise<string>

export function scriptedEngine(script: Script, { contextTokens = 100_000, maxSequences = 64 } = {}): ScriptedEngine {
  const id = engineId('scripted')
  const asked: GenerateRequest[] = []
  const sampled: Sampled[] = []
  let given = 0
  const engine = { id, asked, sampled, version: 0, start: async () => running }

  async function generate(
    request: GenerateRequest,
    onTokens?: (tokens: Int32Array) => void,
    signal?: AbortSignal,
  ): Promise<Generation> {
    asked.push(request)
    const startedAt = Date.now()
    const turn = asked.length - 1
    const answer = (async () => script(decodeChars(request.context), turn, request))()
    const aborted = new Promise<never>((_, reject) => {
      signal?.addEventListener('abort', () => reject(signal.reason))
    })
    aborted.catch(() => {})
    const text = await Promise.race([answer, aborted]).catch(thrown => {
      // An engine streams tokens as it samples them, so those before its loss have reached the client.
      if (thrown instanceof GenerationLost) for (const token of thrown.partial.tokens) onTokens?.(Int32Array.of(token))
      throw thrown
    })
    const whole = encodeChars(`${text}<|im_end|>`)
    const tokens = whole.slice(0, request.maxTokens)
    const logprobs = Float32Array.from(tokens, () => -++given / 65_536)
    const { version } = engine
    sampled.push({ requestId: request.requestId, context: request.context, tokens, logprobs, version })
    for (const token of tokens) onTokens?.(Int32Array.of(token))
    const endedAt = Date.now()
    return {
      ...{ tokens, logprobs, text: decodeChars(tokens), finish: tokens.length === whole.length ? 'stop' : 'length' },
      segments: [{ policyVersion: policyVersion(version), start: 0, end: tokens.length }],
      ...{
        cachedTokens: 0,
        preemptions: 0,
        timing: { queuedAt: startedAt, startedAt, firstTokenAt: endedAt, endedAt },
      },
    }
  }

  const running: Engine = {
    id,
    capabilities: {
      ...{ kind: 'custom', model: 'scripted', kvTokens: 1e9, blockTokens: 16, maxSequences, contextTokens },
      ...{ vocabulary: 0x110002, prefixSharing: false, prioritySign: 0, trainable: true, deterministic: true },
    },
    generate: (request, signal) => generate(request, undefined, signal),
    stream: (request, onTokens, signal) => generate(request, onTokens, signal),
    abort: async () => {},
    release: async () => {},
    updateWeights: async () => {},
    status: async () => ({
      ...{ type: 'engine.status', at: Date.now(), engine: id, version: policyVersion(engine.version), kvTokens: 1e9 },
      ...{ referencedTokens: 0, cachedTokens: 0, running: 0, waiting: 0, generatedTokens: given, prefilledTokens: 0 },
      ...{ preemptions: 0, busyMs: 0, cpuMs: 0, maxRssBytes: 0 },
    }),
    lost: new Promise(() => {}),
    close: async () => {},
  }
  return engine
}
