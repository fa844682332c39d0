/**
 * The role `scheduler`: which engine generates which turn, which executor makes which tool call.
 * in   what coordinators ask, what engines and executors say of themselves        out  assignments
 */

import { scheduler } from '../../scheduling/scheduler'
import { dispatcher } from '../../tools/dispatcher'
import type { Scope } from './scope'

export interface SchedulingOptions {
  /**
   * Who takes over from another process says so once it hears: what was asked before, of the other, is asked again then.
   * Where all of a run begins at once there is nothing to say.
   */
  readonly claims: boolean
}

export async function startScheduling(scope: Scope, { claims }: SchedulingOptions): Promise<void> {
  const { troupe, options } = scope
  const hosts = [
    await scope.host({
      behaviour: scheduler(options.config.scheduler.policy),
      feeds: [
        { topic: 'runs', from: 'oldest' },
        { topic: 'trajectories', from: 'latest' },
        { topic: 'turns', from: 'latest' },
        { topic: 'telemetry', from: 'latest' },
      ],
    }),
    await scope.host({ behaviour: dispatcher(), feeds: [{ topic: 'tool-calls', from: 'latest' }] }),
  ]
  if (!claims) return
  for (const host of hosts) await host.live
  const { journal, fx } = troupe
  const partitions = await journal.partitionsOf('trajectories')
  const owner = `${options.run}.${fx.unique()}`
  for (let partition = 0; partition < partitions; partition++) {
    await journal.appendTo(partition, { type: 'scheduler.claimed', at: fx.now(), partition, owner })
  }
}
