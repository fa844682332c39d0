/**
 * The role `inference`: engines, a process each, and the actors that drive them.
 *
 * in   assignments, published weights        out  generated turns
 * Invariant: an engine that runs takes part, and whenever its process was started anew it joins as a new one.
 */
import type { Engine } from '../../../backends/engines/engine'
import { engines, type PlannedEngine } from '../../inference/engines'
import { type Joined, joinEngine } from '../../inference/joinEngine'
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
  let joined: Joined | undefined
  /** Coming and going follow one another. */
  let before: Promise<void> = Promise.resolve()
  const then = (work: () => Promise<void>): Promise<void> => {
    const after = before.then(work)
    before = after.catch(() => {})
    return after
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
        joined = await joinEngine(troupe, started, { keepKv: options.config.engine.keepKv, onFailed: fail })
      }),
    onDown: error => {
      log.warn({ engine: id, err: error }, 'an engine went down')
      return then(() => leave(error.message))
    },
    onFailed: fail,
    fx,
  })
  scope.onClose(async () => {
    // Who ends a whole run needs to say no more; others go on without this engine.
    await then(() => (options.role === 'all' ? (joined?.close() ?? Promise.resolve()) : leave('its process ends')))
    await engine.close()
  })
}
