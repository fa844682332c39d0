/**
 * One process a run, on a bus that several processes share: who owns a partition of the run's own group drives the run.
 *
 * in   a bus and a run      out  the hold, or `bus.run_held` where another process has it
 * Invariant: two processes never both hold a run for longer than a group's session: who was silent for so long, because it
 * hung or was stopped, is told that it lost the hold as soon as it is heard again.
 */
import { topicOnBus } from '../../messages'
import type { RunId } from '../../messages/ids'
import { TroupeError } from '../errors'
import type { Bus } from './bus'

export interface Hold {
  release(): Promise<void>
}

/** @throws TroupeError bus.run_held */
export async function holdRun(bus: Bus, run: RunId, onLost: (error: Error) => void): Promise<Hold> {
  const topic = topicOnBus(run, 'runs')
  await bus.createTopics([{ topic, partitions: 1, retentionMs: null }])
  let held = false
  let released = false
  const member = await bus.subscribe(
    {
      topics: [topic],
      group: `troupe.${run}.process`,
      from: 'latest',
      onAssigned: async () => {
        held = true
        return undefined
      },
      onRevoked: async () => {
        held = false
        if (!released) onLost(lost(run))
      },
      onError: onLost,
    },
    async () => {},
  )
  const release = async (): Promise<void> => {
    released = true
    await member.close()
  }
  if (held) return { release }
  await release()
  throw new TroupeError('bus.run_held', {
    boundary: 'bus',
    retriable: true,
    message: `another process drives the run '${run}'`,
    hint: 'end that one first; one that was killed holds a run until its session ends (sessionTimeoutMs, 10 s)',
  })
}

function lost(run: RunId): TroupeError {
  return new TroupeError('bus.run_lost', {
    boundary: 'bus',
    retriable: true,
    message: `this process was silent for so long that another may drive the run '${run}' by now`,
    hint: 'look whether another process runs it; go on with --resume where none does',
  })
}
