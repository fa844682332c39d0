/**
 * The SGLang engine: a server that the run or somebody else has started, over its native HTTP API.
 *
 * in   generate, abort, new weights, sleep and wake
 * out  generations, as token ids with logprobs and the weights that sampled them
 * Invariant: every `generate` settles: with its answer, with the tokens so far when it was aborted, or with an error,
 * which is `engine.lost` when the server is gone. A token is attributed to the weights that the server names with it;
 * weights that this engine neither loaded nor found at its start are an error. tests/sglang runs the engine over a real
 * server on a CPU, but without sleep and wake: freeing memory needs CUDA.
 */
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import type { EngineCapabilities, WeightsUpdate } from '../engine'
import { serverHealth } from '../server/health'
import { serverHttp } from '../server/http'
import { ServerRequests } from '../server/requests'
import { capabilitiesOf, type ServerEngine, type ServerEngineOptions } from '../server/traits'
import { sglangAnswers } from './answers'
import { sglangLoads } from './loads'
import { sglangPolicy } from './policy'
import { probeSglang } from './probe'
import type { SglangTraits } from './traits'
import type { SglangPause } from './weights'

export interface SglangEngineOptions extends ServerEngineOptions {
  /**
   * Method by which the server is paused for new weights. Default: `abort`; the others need a server that reports which
   * weights sampled each token.
   */
  readonly pause?: SglangPause
}

export interface SglangEngine extends ServerEngine {
  readonly traits: SglangTraits
  sleep(): Promise<void>
  wake(update?: WeightsUpdate): Promise<void>
}

/**
 * Connects to a server and probes it. @throws TroupeError engine.unfit (not retriable) if it does not fit the run;
 * engine.lost and engine.timeout if it does not answer; engine.failed if its answer is not that of an SGLang server
 */
export async function startSglangEngine(options: SglangEngineOptions): Promise<SglangEngine> {
  const { id, url, expected, pause = 'abort', stallMs, firstTokenMs, weightUpdateMs, fx = systemEffects } = options
  const http = serverHttp(url, options.token)
  const traits = await probeSglang(http, expected).catch(thrown => {
    http.close()
    throw thrown
  })
  if (pause !== 'abort' && !traits.tellsSpans) {
    http.close()
    throw noSpans(url, pause)
  }
  const capabilities: EngineCapabilities = {
    kind: 'sglang',
    ...capabilitiesOf(traits, expected),
    // The sign is 0 because SGLang, when its KV cache is full, preempts the request with the fewest generated tokens,
    // whatever the priority.
    prioritySign: 0,
    trainable: traits.processedLogprobs && traits.takesWeights,
    deterministic: traits.takesSeed,
  }
  // Polls another path than /health, which in newer versions generates a token and so fails while the server is paused.
  const health = serverHealth(http, { path: '/ping', ...options.health })
  const requests = new ServerRequests({ id, capabilities, http, health, fx, stallMs, firstTokenMs, weightUpdateMs })
  const policy = sglangPolicy(requests, traits, pause)
  const { totals, answer } = sglangAnswers({ requests, policy, traits, expected, fx })

  return {
    ...requests.engine(answer),
    traits,
    updateWeights: policy.updateWeights,
    sleep: policy.sleep,
    wake: policy.wake,
    async status() {
      requests.mustLive()
      const { running, waiting, usedTokens } = await sglangLoads(http)
      return {
        type: 'engine.status',
        at: fx.now(),
        engine: id,
        version: policy.version(),
        kvTokens: capabilities.kvTokens,
        referencedTokens: usedTokens,
        cachedTokens: 0,
        running,
        waiting,
        ...totals,
        busyMs: requests.busyMs,
        cpuMs: 0,
        maxRssBytes: 0,
      }
    },
  }
}

const noSpans = (url: string, pause: SglangPause): TroupeError =>
  new TroupeError('engine.unfit', {
    boundary: 'engine',
    retriable: false,
    message: `the SGLang server at ${url} does not report which weights sampled which token, and engine.pause '${pause}' needs that`,
    hint: "set engine.pause to 'abort', or use a version of SGLang whose answers have weight_versions",
  })
