/**
 * The role `inference`: engines, a process each, and the actors that drive them.
 *
 * in   assignments, published weights        out  generated turns
 * Invariant: an engine that runs takes part. One that was taken for dead, because nobody heard of it for a while, joins
 * again as soon as it reads that; one that failed turn after turn, when it has rested.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../../runtime/engine'
import { engines, type PlannedEngine } from '../engines'
import { type Joined, joinEngine } from '../joinEngine'
import { lifeline } from '../lifeline'
import type { ModelOnDisk } from '../model'
import type { Scope } from './scope'

export interface InferenceOptions {
  readonly model: ModelOnDisk
  /** Engines are named `<name>-<k>`, by default after their kind; no two processes of a run have one name. */
  readonly name?: string
}

export async function startInference(scope: Scope, { model, name }: InferenceOptions): Promise<void> {
  const planned = engines(scope.options, model.directory, name)
  scope.onClose(() => planned.close())
  for (const engine of planned.engines) await startEngine(scope, engine)
}

async function startEngine(scope: Scope, { id, start, restart = {} }: PlannedEngine): Promise<void> {
  const { options, troupe, fail } = scope
  const { log, fx } = options
  let up: Engine | undefined
  let joined: Joined | undefined
  /** Ends the rest of an engine that was given up: its process is another, or all ends. */
  let resting = new AbortController()
  let isClosing = false
  /** Coming, going and coming again follow one another. */
  let before: Promise<void> = Promise.resolve()
  const then = (work: () => Promise<void>): Promise<void> => {
    const after = before.then(work)
    before = after.catch(() => {})
    return after
  }
  const closeDriven = async () => {
    const driven = joined
    joined = undefined
    await driven?.close()
  }
  const leave = async (reason: string) => {
    const left = joined
    joined = undefined
    await left?.leave(reason)
  }

  const engine = lifeline<Engine>({
    name: id,
    start,
    restart,
    onUp: started =>
      then(async () => {
        up = started
        joined = await joinEngine(troupe, started)
      }),
    onDown: error => {
      log.warn({ engine: id, err: error }, 'an engine went down')
      up = undefined
      resting.abort()
      return then(() => leave(error.message))
    },
    onFailed: fail,
    fx,
  })
  scope.onClose(async () => {
    isClosing = true
    resting.abort()
    // Who ends a whole run needs to say no more; others go on without this engine.
    await then(() => (options.role === 'all' ? closeDriven() : leave('its process ends')))
    await engine.close()
  })

  const following = await troupe.journal.follow(
    { group: `engine-watch.${fx.unique()}`, feeds: [{ topic: 'runs', from: 'latest' }], onError: fail },
    async entries => {
      const said = entries.findLast(({ message }) => message.type === 'engine.left' && message.engine === id)?.message
      if (said?.type !== 'engine.left') return
      // Not awaited: closing an actor waits for its feeds, and this is one of the journal's.
      then(async () => {
        const driven = joined
        if (driven === undefined || up === undefined) return // it left by itself
        const { reason, retryAfterMs = 0 } = said
        log.warn({ engine: id, reason, retryAfterMs }, 'the scheduler gave the engine up; it joins again')
        joined = undefined
        await driven.close()
        resting = new AbortController()
        if (isClosing || up === undefined) return
        await sleep(retryAfterMs, undefined, { signal: resting.signal }).catch(() => {})
        if (up !== undefined && !resting.signal.aborted) joined = await joinEngine(troupe, up)
      }).catch(fail)
    },
  )
  scope.onClose(() => following.close())
}
