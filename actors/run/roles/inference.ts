/**
 * The role `inference`: an actor an engine, which owns the engine's process and the behaviour that drives it.
 *
 * in   assignments, published weights        out  generated turns
 * Invariant: an engine that runs takes part in the run; whenever its process was started anew it joins as a new one.
 */
import type { Engine } from '../../../backends/engines/engine'
import { engines, type PlannedEngine } from '../../inference/engines'
import { type Joined, joinEngine } from '../../inference/joinEngine'
import type { ModelOnDisk } from '../model'
import { type ProcessActor, processActor } from '../processActor'
import { supervisedTokenReader } from '../supervisedRenderer'
import { embeddedUnder } from '../supervisor'
import type { Branch, Scope } from './scope'

export interface InferenceOptions {
  readonly model: ModelOnDisk
  /** Engines are named `<name>-<k>`, by default after their kind; no two processes of a run have one name. */
  readonly name?: string
}

export async function startInference(scope: Scope, { model, name }: InferenceOptions): Promise<void> {
  const branch = await scope.under('inference')
  const planned = engines(scope.options, model.directory, name, supervisedTokenReader(branch, model))
  branch.onClose(() => planned.close())
  await branch.processes(
    'engine',
    planned.engines.map(engine => engineActor(branch, engine)),
  )
}

function engineActor({ options, troupe }: Branch, { id, start, restart = {} }: PlannedEngine): ProcessActor<Engine> {
  let joined: Joined | undefined
  return processActor<Engine>({
    ...{ name: id, start, restart },
    async onUp(engine, context, onFailed) {
      const own = embeddedUnder(troupe, context, onFailed)
      joined = await joinEngine(own, engine, { keepKv: options.config.engine.keepKv, onFailed })
    },
    async onDown(reason, error) {
      const left = joined
      joined = undefined
      // The end of a whole run needs no engine.left; the other processes of a run go on without this engine.
      if (reason === 'stopped' && options.role === 'all') await left?.close()
      else await left?.leave(error?.message ?? 'its process ends')
    },
  })
}
