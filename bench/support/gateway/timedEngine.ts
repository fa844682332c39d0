/**
 * An engine that answers each call with the same tokens after a given time, and costs next to nothing itself.
 *
 * in   calls        out  an answer of one token and its end, streamed
 * Invariant: the context is not read, so its length costs the engine nothing.
 */
import type { Engine, Generation } from '../../../backends/engines/engine'
import type { StartableEngine } from '../../../gateway/engines/enginePool'
import { engineId, policyVersion } from '../../../messages/ids'

export interface Answer {
  readonly tokens: Int32Array
  readonly text: string
}

export function timedEngine({ tokens, text }: Answer, afterMs: number): StartableEngine {
  const id = engineId('timed')
  const logprobs = new Float32Array(tokens.length).fill(-0.5)
  const generated = (): Generation => {
    const at = Date.now()
    return {
      ...{ tokens, logprobs, text, finish: 'stop' },
      segments: [{ policyVersion: policyVersion(0), start: 0, end: tokens.length }],
      ...{ cachedTokens: 0, preemptions: 0, timing: { queuedAt: at, startedAt: at, firstTokenAt: at, endedAt: at } },
    }
  }
  const generate = async () => {
    if (afterMs > 0) await new Promise<void>(resolve => setTimeout(resolve, afterMs))
    return generated()
  }
  const engine: Engine = {
    id,
    capabilities: {
      ...{ kind: 'custom', model: 'timed', kvTokens: 1e9, blockTokens: 16, maxSequences: 256, contextTokens: 200_000 },
      ...{ vocabulary: 0x110002, prefixSharing: false, prioritySign: 0, trainable: true, deterministic: true },
    },
    generate,
    stream: async (_request, onTokens) => {
      const whole = await generate()
      for (const token of tokens) onTokens(Int32Array.of(token))
      return whole
    },
    abort: async () => {},
    release: async () => {},
    updateWeights: async () => {},
    status: () => Promise.reject(new Error('this engine has no status')),
    lost: new Promise(() => {}),
    close: async () => {},
  }
  return { id, start: async () => engine }
}
