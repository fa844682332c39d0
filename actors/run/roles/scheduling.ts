/**
 * The role `scheduler`: which engine generates which turn, which executor makes which tool call.
 * in   turns and calls that coordinators ask for, states of engines and executors        out  assignments
 */
import { scheduler } from '../../scheduling/scheduler'
import { dispatcher } from '../../tools/dispatcher'
import type { Scope } from './scope'

export interface SchedulingOptions {
  /**
   * True where this process takes over from another: it writes `scheduler.claimed` once it hears, and coordinators ask again
   * for what they had asked of the other. Not needed where the whole run begins at once.
   */
  readonly claims: boolean
}

export async function startScheduling(scope: Scope, { claims }: SchedulingOptions): Promise<void> {
  const { troupe, options } = scope
  const branch = await scope.under('coordination')
  const hosts = [
    await branch.host({
      behaviour: scheduler(options.config.scheduler.policy),
      feeds: [
        { topic: 'runs', from: 'oldest' },
        { topic: 'trajectories', from: 'latest' },
        { topic: 'turns', from: 'latest' },
        { topic: 'telemetry', from: 'latest' },
      ],
    }),
    await branch.host({ behaviour: dispatcher(), feeds: [{ topic: 'tool-calls', from: 'latest' }] }),
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
