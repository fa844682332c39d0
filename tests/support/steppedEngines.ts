/**
 * Engines that a test advances by steps: each call of `step` gives every running sequence its next token.
 *
 * in   a function from a turn's seed to the turn's tokens and text        out  engines
 * Invariant: a turn's tokens follow from its seed alone, whichever engine samples them and however often the turn is
 * interrupted; weights that are loaded during a turn begin a new segment. So a test knows a run's result without
 * running it.
 */

import type { Engine, EngineCapabilities, GenerateRequest, Generation } from '../../backends/engines/engine'
import type { PolicySegment } from '../../messages/facts'
import { type EngineId, policyVersion } from '../../messages/ids'
import { answer, toolCall } from './facts'
import { drawAt } from './hashModel'

export interface Script {
  /** All tokens of the turn, if no limit ends it earlier. */
  readonly tokens: Int32Array
  readonly text: string
}

export interface SteppedEngine extends Engine {
  /** Gives each running sequence its next token. */
  step(): void
}

interface Running {
  readonly request: GenerateRequest
  readonly script: Script
  readonly tokens: number[]
  readonly segments: { policyVersion: PolicySegment['policyVersion']; start: number; end: number }[]
  readonly resolve: (generation: Generation) => void
}

const timing = { queuedAt: 0, startedAt: 0, firstTokenAt: 0, endedAt: 0 }
const steppedLogprob = -0.5

/** Makes a turn of `length` tokens. By seed, a third of the turns call a tool; of the others half answer right. */
export function turnOf(seed: number, length: number): Script {
  const tokens = Int32Array.from({ length }, (_, at) => 100 + Math.floor(60_000 * drawAt(seed, at + 3)))
  return { tokens, text: drawAt(seed, 1) < 1 / 3 ? toolCall('2+2') : answer(drawAt(seed, 2) < 0.5 ? '4' : '5') }
}

export function steppedEngine(
  id: EngineId,
  maxSequences: number,
  scriptOf: (seed: number) => Script,
  contextTokens = 4096,
): SteppedEngine {
  const kvTokens = maxSequences * contextTokens
  const sizes = { kvTokens, blockTokens: 16, maxSequences, contextTokens, vocabulary: 65_536 }
  const traits = { prefixSharing: false, prioritySign: 0, trainable: true, deterministic: true } as const
  const capabilities: EngineCapabilities = { kind: 'custom', model: 'stepped', ...sizes, ...traits }
  const running = new Map<string, Running>()
  let version = policyVersion(0)
  let generatedTokens = 0

  function end(one: Running, finish: Generation['finish']): void {
    running.delete(one.request.requestId)
    const tokens = Int32Array.from(one.tokens)
    const logprobs = new Float32Array(tokens.length).fill(steppedLogprob)
    const { text } = one.script
    one.resolve({ tokens, logprobs, text, finish, segments: one.segments, cachedTokens: 0, preemptions: 0, timing })
  }

  return {
    id,
    capabilities,
    lost: new Promise(() => {}),
    generate: (request, signal) =>
      new Promise(resolve => {
        const one: Running = { request, script: scriptOf(request.seed), tokens: [], segments: [], resolve }
        running.set(request.requestId, one)
        signal?.addEventListener('abort', () => end(one, 'aborted'), { once: true })
      }),
    async abort(requestId) {
      const one = running.get(requestId)
      if (one !== undefined) end(one, 'aborted')
    },
    release: async () => {},
    async updateWeights(update) {
      version = update.version
    },
    async status() {
      const held = { kvTokens, referencedTokens: 0, cachedTokens: 0, running: running.size, waiting: 0, preemptions: 0 }
      const totals = { generatedTokens, prefilledTokens: 0, busyMs: 0, cpuMs: 0, maxRssBytes: 0 }
      return { type: 'engine.status', at: 0, engine: id, version, ...held, ...totals }
    },
    step() {
      for (const one of [...running.values()]) {
        const { request, script, tokens, segments } = one
        tokens.push(script.tokens[request.resumedTokens + tokens.length]!)
        generatedTokens++
        const last = segments.at(-1)
        if (last?.policyVersion === version) last.end = tokens.length
        else segments.push({ policyVersion: version, start: tokens.length - 1, end: tokens.length })
        if (request.resumedTokens + tokens.length === script.tokens.length) end(one, 'stop')
        else if (tokens.length === request.maxTokens) end(one, 'length')
      }
    },
    async close() {
      for (const one of [...running.values()]) end(one, 'aborted')
    },
  }
}
