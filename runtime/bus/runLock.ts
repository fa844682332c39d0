/**
 * The lock on a run for a process that has all roles: it leads every elected role of the run, or is refused.
 *
 * in   a bus and a run      out  the lock, or `bus.run_held` when another process leads a role
 * Invariant: another process can take the lock only when its holder released it or was silent for longer than a group's
 * session, because it hung or was suspended. Such a holder gets `onLost` when it reaches the group again.
 */
import type { RunId } from '../../messages/ids'
import { TroupeError } from '../errors'
import type { Bus } from './bus'
import { type ElectedRole, type Election, joinElection } from './leaderElection'

export interface RunLock {
  release(): Promise<void>
}

const electedRoles: readonly ElectedRole[] = ['learner', 'scheduler']

/**
 * Takes the lock. @throws TroupeError bus.run_held when another process leads a role; or the error that keeps this
 * process out of the election: bus.denied, …
 */
export async function lockRun(bus: Bus, run: RunId, onLost: (error: Error) => void): Promise<RunLock> {
  const elections: Election[] = []
  let isHeld = false
  let fault: Error | undefined
  const onError = (error: Error): void => {
    if (isHeld) onLost(error)
    else fault ??= error
  }
  const release = async (): Promise<void> => {
    for (const election of elections.splice(0)) await election.release()
  }
  for (const name of electedRoles) {
    const election = await joinElection(bus, run, name, {
      onElected: () => {},
      onLost: () => onError(lost(run)),
      onError,
    })
    elections.push(election)
    if (fault === undefined && election.isLeader()) continue
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
    hint: 'end that process first. If it was killed, its lock lasts until its session ends (sessionTimeoutMs, by default 10 s). To share the work of a run, start roles with --role',
  })
}

function lost(run: RunId): TroupeError {
  return new TroupeError('bus.run_lost', {
    boundary: 'bus',
    retriable: true,
    message: `this process lost the run '${run}': its session expired, or the group gave its role away, so another process may drive it`,
    hint: 'check whether another process drives the run; if none does, continue with --resume',
  })
}
