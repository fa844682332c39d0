/**
 * The role `inference`: one actor per engine, which owns the engine's process and the behaviour that drives it.
 *
 * in   assignments, published weights        out  generated turns
 * Invariant: a running engine takes part in the run, except while it pauses after failures (joinEngine.ts); whenever
 * its process was restarted, it leaves and joins the run again under the same name.
 */
import type { Engine } from '../../../backends/engines/engine'
import { timeoutsOf } from '../../../config/estimate/timeouts'
import type { Timeouts } from '../../../config/sections/timeouts'
import { engines, type PlannedEngine } from '../../inference/engines'
import { type Joined, joinEngine } from '../../inference/joinEngine'
import type { DeviceLeases } from '../deviceLeases'
import { leased } from '../leased'
import type { ModelOnDisk } from '../model'
import { type ProcessActor, processActor } from '../processActor'
import { supervisedTokenReader } from '../supervisedRenderer'
import { embeddedUnder } from '../supervisor'
import type { Branch, Scope } from './scope'

export interface InferenceOptions {
  readonly model: ModelOnDisk
  /**
   * First part of the engines' names `<name>-<k>`; default: the kind of the recipe's engines. No two processes of the
   * run may have the same first part.
   */
  readonly name?: string
}

export async function startInference(scope: Scope, { model, name }: InferenceOptions): Promise<void> {
  const branch = await scope.under('inference')
  const planned = engines(scope.options, model.directory, name, supervisedTokenReader(branch, model))
  branch.onClose('engines', () => planned.close())
  const leases = await branch.leases()
  const timeouts = timeoutsOf(branch.options.config)
  await branch.processes(
    'engine',
    planned.engines.map((engine, index) => engineActor(branch, engine, index, leases, timeouts)),
  )
}

function engineActor(
  { options, troupe }: Branch,
  { id, start, restart = {}, waitsForever = false }: PlannedEngine,
  index: number,
  leases: DeviceLeases,
  timeouts: Timeouts,
): ProcessActor<Engine> {
  let joined: Joined | undefined
  const { keepKv } = options.config.engine
  const runDirectory = options.directory
  const { fetchWeightsMs } = timeouts
  const sleeps = options.learns && options.config.hardware?.plan?.kind === 'colocated'
  const child = { name: id, group: 'engines', index } as const
  return processActor<Engine>({
    ...{ name: id, restart, waitsForever },
    start: signal => leased(leases, child, signal, env => start(signal, env)),
    async onUp(engine, context, onFailed) {
      const own = embeddedUnder(troupe, context, onFailed)
      joined = await joinEngine(own, engine, { keepKv, fetchWeightsMs, runDirectory, sleeps, onFailed })
    },
    async onDown(reason, error) {
      const left = joined
      joined = undefined
      // When the whole run ends, no engine.left is needed; when one process of several ends, the others continue
      // without its engine.
      if (reason === 'stopped' && options.role === 'all') await left?.close()
      else await left?.leave(error?.message ?? 'its process ends')
    },
  })
}
