/**
 * The weights of a running SGLang server: their policy version, their label on the server, whether they are in memory.
 *
 * in   new weights, sleep and wake; the label that came with a token        out  the policy version that sampled it
 * Invariant: the gate is closed while this engine has paused the server, so no generation is sent. If the server can
 * load weights, a token of weights that this engine neither loaded nor found at its start is an error. The weights that
 * the server had when this engine connected have version -1; if the server cannot load weights, an update loads nothing
 * and only sets their version.
 */
import { type EngineId, type PolicyVersion, policyVersion } from '../../../messages/ids'
import { TroupeError } from '../../../runtime/errors'
import { servedWeights } from '../../weights/servedWeights'
import type { Engine, WeightsUpdate } from '../engine'
import { garbage } from '../server/reply'
import type { ServerRequests } from '../server/requests'
import type { SglangTraits } from './traits'
import { releaseSglang, resumeSglang, type SglangPause, updateSglang } from './weights'

export interface SglangPolicy extends Required<Pick<Engine, 'updateWeights' | 'sleep' | 'wake'>> {
  /**
   * True if a pause ends running requests, so that the same weights sample all tokens of a leg. A leg is one of the
   * requests that generate a turn: after a pause the next leg continues the turn.
   */
  readonly endsLegs: boolean
  /** Returns the policy version of the current weights. */
  version(): PolicyVersion
  /**
   * Returns the policy version of weights with this label: -1 for the weights that the server had when this engine
   * connected; the current version if the server cannot load weights. @throws TroupeError engine.failed if this engine
   * did not set the label, or has forgotten it
   */
  versionOf(label: string): PolicyVersion
}

/** Number of newest labels that are remembered; it bounds the weight updates during one turn. */
const rememberedLabels = 64

interface LabelledWeights {
  readonly directory: string
  readonly label: string
}

export function sglangPolicy(requests: ServerRequests, traits: SglangTraits, pause: SglangPause): SglangPolicy {
  const { id, http, gate, weightUpdateMs: loadMs } = requests
  const { url } = http
  let version = policyVersion(-1)
  /** Policy versions by the label that the server reports with each token. */
  const versions = new Map<string, PolicyVersion>([[traits.weightLabel, version]])
  let labels = 0
  let newest: LabelledWeights | undefined
  let asleep: { readonly tags: readonly string[]; readonly open: () => void } | undefined

  /**
   * Returns the weights of an update: their directory, and a label that this engine knows from now on. The label is
   * known before the load, since the server may load the weights although its answer is lost; older labels are kept,
   * since tokens of older weights may still arrive.
   */
  async function labelled(update: WeightsUpdate): Promise<LabelledWeights> {
    const { version: loaded } = update
    const directory = await servedWeights(update.directory, update)
    // A suffix makes the label unique: a server that outlived an earlier run may use the plain number already.
    const label = versions.has(String(loaded)) ? `${loaded}+${++labels}` : String(loaded)
    versions.set(label, loaded)
    for (const oldest of [...versions.keys()].slice(0, -rememberedLabels)) versions.delete(oldest)
    return { directory, label }
  }

  const updateWeights = (update: WeightsUpdate): Promise<void> =>
    requests.change(async () => {
      if (asleep !== undefined) throw asleepError(id)
      if (!traits.takesWeights) {
        if (update.digest !== '' || update.version !== 0) throw noUpdates(url)
        version = update.version
        return
      }
      if (pause === 'in_place' && !update.keepKv) throw keepsKv(url)
      const weights = await labelled(update)
      const open = gate.close()
      try {
        await updateSglang(http, { ...weights, keepKv: update.keepKv, pause, loadMs }, () => {
          version = update.version
          newest = weights
        })
      } finally {
        open()
      }
    })

  return {
    endsLegs: pause === 'abort',
    version: () => version,
    versionOf(label) {
      const known = traits.takesWeights ? versions.get(label) : version
      if (known !== undefined) return known
      throw garbage(
        url,
        `the server's weights have the unknown label '${label}': another process has changed them, or the turn outlasted ${rememberedLabels} updates`,
      )
    },
    updateWeights,
    sleep: () =>
      requests.change(async () => {
        if (!traits.sleeps) throw noSleep(url)
        if (asleep !== undefined) return
        // The weights are freed only if this engine loaded them: for any others it knows no directory to load them from
        // again.
        const tags = newest === undefined ? ['kv_cache'] : ['kv_cache', 'weights']
        const open = gate.close()
        await releaseSglang(http, tags).catch(thrown => {
          open()
          throw thrown
        })
        asleep = { tags, open }
      }),
    async wake(update) {
      let loaded: LabelledWeights | undefined
      await requests.change(async () => {
        if (asleep === undefined) return
        const { tags, open } = asleep
        if (update !== undefined && traits.takesWeights) loaded = await labelled(update)
        const weights = loaded ?? (tags.includes('weights') ? newest : undefined)
        await resumeSglang(http, tags, weights === undefined ? undefined : { ...weights, loadMs })
        if (loaded !== undefined) {
          version = update!.version
          newest = loaded
        }
        asleep = undefined
        open()
      })
      if (update !== undefined && loaded === undefined) await updateWeights(update)
    },
  }
}

const fault = (code: string, message: string, hint: string): TroupeError =>
  new TroupeError(code, { boundary: 'engine', retriable: false, message, hint })

const keepsKv = (url: string) =>
  fault(
    'engine.bad_request',
    `engine.pause 'in_place' keeps the KV cache of older weights on the SGLang server at ${url}, but the recipe does not allow that`,
    "set engine.keepKv, or engine.pause to 'abort' or 'retract'",
  )

const noUpdates = (url: string) =>
  fault(
    'engine.no_updates',
    `the SGLang server at ${url} cannot load new weights`,
    'use a version of SGLang with /pause_generation, /update_weights_from_disk and weight_version in its answers',
  )

const noSleep = (url: string) =>
  fault(
    'engine.no_sleep',
    `the SGLang server at ${url} cannot free its memory`,
    'start the server with --enable-memory-saver',
  )

const asleepError = (id: EngineId): TroupeError =>
  new TroupeError('engine.asleep', {
    boundary: 'engine',
    retriable: true,
    message: `engine ${id} sleeps and has no memory to load weights into`,
    hint: 'call wake() first',
  })
