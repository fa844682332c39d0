/**
 * Makes a Renderer whose process is a child in the supervision tree: if the process dies during a call, the call is
 * repeated with the next process.
 *
 * in   the process actor of a renderer        out  the Renderer's calls
 * Invariant: a call rejects if the renderer refuses its input, if its deadline passes, if 50 processes in a row died
 * under it, or if the process actor (which owns the process) gave up or was stopped. The death of one process does not
 * reject it. Rendering has no side effect, so a call may be repeated.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Renderer } from '../../backends/renderer/renderer'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { TroupeError } from '../../runtime/errors'
import type { SharedRenderer } from '../inference/sharedRenderer'
import type { ModelOnDisk } from './model'
import { type ProcessActor, processActor } from './processActor'
import type { Branch } from './roles/scope'

type Started = Awaited<ReturnType<typeof startRenderer>>

/**
 * Upper bound on the attempts of one call when one process after another dies; the process actor usually gives up
 * sooner.
 */
const mostTries = 50
/**
 * Upper bound on the time in ms to wait, after a call lost its connection, for the report that the process died. The
 * call is then repeated, with or without that report.
 */
const newsMs = 1000

/** Starts the renderer of a model as a child of the branch's supervisor (scope.ts). Rejects if no start succeeds. */
export async function startSupervisedRenderer(branch: Branch, model: ModelOnDisk): Promise<Renderer> {
  const actor = rendererActor('renderer', branch, model)
  await branch.processes('renderer', [actor])
  await actor.current()
  const call = callerOf(actor)
  return {
    prompt: (messages, tools) => call(one => one.prompt(messages, tools)),
    toolResponses: responses => call(one => one.toolResponses(responses)),
    conversations: (conversations, tools) => call(one => one.conversations(conversations, tools)),
    decode: tokens => call(one => one.decode(tokens)),
    tokenBytes: () => call(one => one.tokenBytes()),
    encode: text => call(one => one.encode(text)),
    describe: () => call(one => one.describe()),
    close: async () => {}, // nothing to do: the supervisor ends the process
  }
}

/**
 * Decodes and encodes tokens for the engines under the branch's supervisor. The renderer process starts at the first
 * call of `ready`, `decode` or `encode`; `close` does nothing, since the supervisor ends the process.
 */
export function supervisedTokenReader(branch: Branch, model: ModelOnDisk): SharedRenderer {
  const actor = rendererActor('token-reader', branch, model)
  const call = callerOf(actor)
  let adopted: Promise<void> | undefined
  const ready = async () => {
    adopted ??= branch.processes('token-reader', [actor])
    await adopted
    await actor.current()
  }
  const ask = async <T>(use: (one: Started) => Promise<T>): Promise<T> => {
    await ready()
    return call(use)
  }
  return {
    ready,
    decode: tokens => ask(one => one.decode(tokens)),
    encode: text => ask(one => one.encode(text)),
    close: async () => {},
  }
}

function rendererActor(
  name: string,
  { options: { log } }: Branch,
  { directory: modelDirectory, template }: ModelOnDisk,
): ProcessActor<Started> {
  const given: { readonly template?: string } = template === undefined ? {} : { template }
  return processActor({ name, start: signal => startRenderer({ modelDirectory, ...given, log, signal }) })
}

const callerOf =
  (actor: ProcessActor<Started>) =>
  async <T>(use: (one: Started) => Promise<T>): Promise<T> => {
    for (let tries = 1; ; tries++) {
      const one = await actor.current()
      try {
        return await use(one)
      } catch (thrown) {
        if (!(thrown instanceof TroupeError) || thrown.code !== 'codec.lost' || tries >= mostTries) throw thrown
        const waited = new AbortController()
        await Promise.race([one.lost, sleep(newsMs, undefined, { signal: waited.signal }).catch(() => {})])
        waited.abort()
      }
    }
  }
