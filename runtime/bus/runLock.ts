/**
 * A run held by one process that does everything: it has every seat of the run at once, or is refused.
 *
 * in   a bus and a run      out  the hold, or `bus.run_held` where another process has a seat
 * Invariant: two processes never both hold a run for longer than a group's session: who was silent for so long, because it
 * hung or was stopped, is told that it lost the hold as soon as it is heard again.
 */
import type { RunId } from '../../messages/ids'
import { TroupeError } from '../errors'
import type { Bus } from './bus'
import { type ElectedRole, type Election, joinElection } from './leaderElection'

export interface RunLock {
  release(): Promise<void>
}

const seats: readonly ElectedRole[] = ['learner', 'scheduler']

/** @throws TroupeError bus.run_held, or what keeps this process from having a seat at all: bus.denied and the like */
export async function lockRun(bus: Bus, run: RunId, onLost: (error: Error) => void): Promise<RunLock> {
  const taken: Election[] = []
  let isHeld = false
  let fault: Error | undefined
  const onError = (error: Error): void => {
    if (isHeld) onLost(error)
    else fault ??= error
  }
  const release = async (): Promise<void> => {
    for (const seat of taken.splice(0)) await seat.release()
  }
  for (const name of seats) {
    const seat = await joinElection(bus, run, name, { onElected: () => {}, onLost: () => onError(lost(run)), onError })
    taken.push(seat)
    if (fault === undefined && seat.isLeader()) continue
    await release()
    throw fault ?? held(run)
  }
  isHeld = true
  return { release }
}

function held(run: RunId): TroupeError {
  return new TroupeError('bus.run_held', {
    boundary: 'bus',
    retriable: true,
    message: `another process drives the run '${run}'`,
    hint: 'end that one first; one that was killed holds a run until its session ends (sessionTimeoutMs, 10 s). To share the work of a run: --role',
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
