/**
 * The vLLM engine: a server that the run or somebody else has started, over its HTTP API.
 *
 * in   generate, abort, new weights or adapters, sleep and wake
 * out  generations, as token ids with logprobs under the distribution sampled from
 * Invariant: every `generate` settles: with its answer, with the tokens so far when it was aborted, or with an error,
 * which is `engine.lost` when the server is gone. Each token is attributed to the weights that sampled it: these change
 * only while the server is paused, after every earlier token has arrived; with adapters, if the server takes them,
 * between two requests. vLLM does not report preemptions of one request (its status has their sum), nor KV that is only
 * cached.
 */
import { policyVersion } from '../../../messages/ids'
import { systemEffects } from '../../../runtime/effects'
import { servedWeights } from '../../weights/servedWeights'
import type { EngineCapabilities, Generation, WeightsUpdate } from '../engine'
import { serverHealth } from '../server/health'
import { serverHttp } from '../server/http'
import { unanswered } from '../server/reply'
import { refused } from '../server/request'
import { ServerRequests } from '../server/requests'
import type { ServerRun } from '../server/run'
import { capabilitiesOf, type ServerEngine, type ServerEngineOptions } from '../server/traits'
import { vllmAdapters } from './adapters'
import { completionBody, pieceOf } from './completion'
import { vllmMetrics } from './metrics'
import { probeVllm } from './probe'
import { adaptersOnly, noUpdates, noWeights } from './refusals'
import { type SleepLevel, sleepVllm, wakeVllm } from './sleep'
import type { VllmExpectation, VllmTraits } from './traits'
import { updateVllm } from './weights'

export interface VllmEngineOptions extends ServerEngineOptions<VllmExpectation> {
  /**
   * Level of `sleep`, which always frees the KV cache: 1 also moves the weights to the host's memory, 2 discards them.
   * Default: 1.
   */
  readonly sleepLevel?: SleepLevel
}

export interface VllmEngine extends ServerEngine {
  readonly traits: VllmTraits
}

const statusMs = 30_000
const tooLong = /context length|max_model_len/i

/**
 * Connects to a server and probes it. @throws TroupeError engine.unfit (not retriable) if it does not fit the run;
 * engine.lost and engine.timeout if it does not answer; engine.failed if its answer is not that of a vLLM server
 */
export async function startVllmEngine(options: VllmEngineOptions): Promise<VllmEngine> {
  const { id, url, expected, stallMs, firstTokenMs, weightUpdateMs, sleepLevel = 1, fx = systemEffects } = options
  const http = serverHttp(url, options.token)
  const traits = await probeVllm(http, expected).catch(thrown => {
    http.close()
    throw thrown
  })
  const capabilities: EngineCapabilities = {
    kind: 'vllm',
    ...capabilitiesOf(traits, expected),
    prioritySign: traits.prioritySign,
    trainable: traits.processedLogprobs && (traits.takesWeights || traits.takesAdapters),
    deterministic: false,
    takesAdapters: traits.takesAdapters,
  }
  const health = serverHealth(http, options.health)
  const requests = new ServerRequests({ id, capabilities, http, health, fx, stallMs, firstTokenMs, weightUpdateMs })
  const adapters = vllmAdapters(http, requests.weightUpdateMs)
  /** Model name of new requests, and the policy version to which their tokens are attributed. */
  let policy = { version: policyVersion(-1), model: traits.servedName }

  async function answer(run: ServerRun): Promise<Generation> {
    const { request, maxTokens, onTokens } = run
    const sampledBy = policy
    let cachedTokens = 0
    let queuedMs = 0
    const question = {
      path: '/v1/completions',
      body: completionBody(traits, request, maxTokens, sampledBy.model),
      refused: (status: number, message: string) => refused(url, status, message, tooLong),
    }
    const finish = await requests.ask(run, question, line => {
      const piece = pieceOf(url, expected.vocabulary, line)
      cachedTokens = piece.cachedTokens ?? cachedTokens
      queuedMs = piece.queuedMs ?? queuedMs
      if (piece.tokens.length === 0) return piece.finish
      run.begun()
      piece.tokens.forEach((token, i) => {
        run.take(token, piece.logprobs[i]!, sampledBy.version)
      })
      onTokens?.(Int32Array.from(piece.tokens))
      return piece.finish
    })
    return run.generation(expected.decode, { finish: run.ended(finish), cachedTokens, preemptions: 0, queuedMs })
  }

  /** Directory of the weights that the server was given last; undefined before the first update. */
  let newest: string | undefined
  /** Opens the gate for requests again; undefined while the server is awake. */
  let asleep: (() => void) | undefined

  const updateWeights = (update: WeightsUpdate) =>
    requests.change(async () => {
      const { version, directory, digest, isAdapter = false } = update
      const asItIs = digest === '' && version === 0
      if (isAdapter) {
        // New requests use the new adapter; running ones continue with the adapter that they were started with.
        policy = { version, model: await adapters.load(await servedWeights(directory, update), digest) }
        return
      }
      if (traits.takesAdapters && !asItIs) throw adaptersOnly(url, version)
      if (!traits.takesWeights && !asItIs) throw noUpdates(url)
      const open = requests.gate.close()
      try {
        // The new weights apply to running requests too, which continue with them.
        const onLoaded = () => {
          policy.version = version
        }
        if (traits.takesWeights && !traits.takesAdapters) {
          newest = await servedWeights(directory, update)
          await updateVllm(http, { ...update, loadMs: requests.weightUpdateMs, directory: newest }, onLoaded)
        } else onLoaded()
      } finally {
        open()
      }
    })

  return {
    ...requests.engine(answer),
    traits,
    updateWeights,
    sleep: () =>
      requests.change(async () => {
        if (asleep !== undefined) return
        const open = requests.gate.close()
        await sleepVllm(http, sleepLevel, requests.weightUpdateMs).catch(thrown => {
          open()
          throw thrown
        })
        asleep = open
      }),
    async wake(update) {
      const merged = update !== undefined && !update.isAdapter && traits.takesWeights && !traits.takesAdapters
      let isLoaded = false
      await requests.change(async () => {
        if (asleep === undefined) return
        if (merged) newest = await servedWeights(update.directory, update)
        const isEmpty = sleepLevel === 2
        if (isEmpty && newest === undefined) throw noWeights(url)
        await wakeVllm(http, merged || isEmpty ? newest : undefined, requests.weightUpdateMs)
        if (merged) policy.version = update.version
        isLoaded = merged
        asleep()
        asleep = undefined
      })
      if (update !== undefined && !isLoaded) await updateWeights(update)
    },
    async status() {
      requests.mustLive()
      const reply = await http.get('/metrics', statusMs)
      if (reply.status !== 200) throw unanswered(url, '/metrics', reply)
      const m = vllmMetrics(url, reply.text)
      return {
        type: 'engine.status',
        at: fx.now(),
        engine: id,
        version: policy.version,
        kvTokens: m.kvTokens,
        referencedTokens: Math.round(m.usedShare * m.kvTokens),
        cachedTokens: 0,
        running: m.running,
        waiting: m.waiting,
        generatedTokens: m.generatedTokens,
        prefilledTokens: Math.max(0, m.promptTokens - m.cachedPromptTokens),
        preemptions: m.preemptions,
        busyMs: requests.busyMs,
        cpuMs: 0,
        maxRssBytes: 0,
      }
    },
  }
}
