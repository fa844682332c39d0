/**
 * The role `scheduler`: decides which engine generates which turn, and which executor runs which tool call.
 *
 * in   requested turns and tool calls, states of engines and executors        out  assignments
 */
import { timeoutsOf } from '../../../config/estimate/timeouts'
import { scheduler } from '../../scheduling/scheduler'
import { DISPATCH_LINGER_MS, dispatcher } from '../../tools/dispatcher'
import type { Scope } from './scope'

export interface SchedulingOptions {
  /**
   * True for a process that has only this role and may take over from another process: once it receives requests, it
   * writes `scheduler.claimed` to each partition of `trajectories`, and coordinators repeat their open requests. False
   * if the whole run starts in this process.
   */
  readonly claims: boolean
}

export async function startScheduling(scope: Scope, { claims }: SchedulingOptions): Promise<void> {
  const { troupe, options } = scope
  const branch = await scope.under('coordination')
  const { weightsBehindMs: behindMs } = timeoutsOf(options.config)
  const hosts = [
    await branch.host({
      behaviour: scheduler(options.config.scheduler.policy, { behindMs }),
      feeds: [
        { topic: 'runs', from: 'oldest' },
        { topic: 'trajectories', from: 'latest' },
        { topic: 'turns', from: 'latest' },
        { topic: 'telemetry', from: 'latest' },
      ],
    }),
    await branch.host({
      behaviour: dispatcher(),
      feeds: [{ topic: 'tool-calls', from: 'latest' }],
      lingerMs: DISPATCH_LINGER_MS,
    }),
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
