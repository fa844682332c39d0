/**
 * Leader election for a role that only one process of a run may have: runs the role while elected, stands by otherwise.
 *
 * in   results of the election
 * out  the role started when this process is elected, and ended when it loses the election
 * Invariant: the role is started again in this process only after it has ended there. While it is unclear which process
 * is elected, the role writes nothing (`mayAct`).
 */
import { type ElectedRole, joinElection } from '../../../runtime/bus/leaderElection'
import { asError } from '../../../runtime/errors'
import type { RunOptions } from '../run'
import type { Scope } from './scope'

/**
 * Starts the role and resolves with its scope, which `lead` closes to end the role. The role asks `mayAct` before each
 * write. `again` restarts the role in this process if this process is still elected; otherwise it does nothing.
 */
export type Begin = (mayAct: () => Promise<boolean>, again: () => void) => Promise<Scope>

/**
 * Joins the election. Resolves once this process is elected or stands by, perhaps before the role has started, with a
 * function that ends the role and leaves the election. `fail` gets the errors of the role and of the election.
 */
export async function lead(
  options: RunOptions,
  seatName: ElectedRole,
  fail: (error: Error) => void,
  begin: Begin,
): Promise<() => Promise<void>> {
  const { bus, run, log } = options
  let active: Scope | undefined
  let ours = false
  let turn: Promise<void> = Promise.resolve()
  const inTurn = (work: () => Promise<void>) => {
    turn = turn.then(work).catch(thrown => fail(asError(thrown)))
  }
  let seated: (seat: Awaited<ReturnType<typeof joinElection>>) => void = () => {}
  const opened = new Promise<Awaited<ReturnType<typeof joinElection>>>(resolve => {
    seated = resolve
  })
  const end = async () => {
    const ended = active
    active = undefined
    await ended?.close()
  }
  const again = () =>
    inTurn(async () => {
      const { confirmLeader } = await opened
      if (!ours || active === undefined || !(await confirmLeader())) return
      log.warn(
        { run, part: seatName },
        'another process claimed this role without being elected; this process starts the role again',
      )
      await end()
      active = await begin(confirmLeader, again)
    })
  const seat = await joinElection(bus, run, seatName, {
    onElected: () => {
      ours = true
      inTurn(async () => {
        if (!ours) return // the election was lost while the previous incarnation was closing
        const { confirmLeader } = await opened
        options.onStanding?.('active')
        active = await begin(confirmLeader, again)
      })
    },
    onLost: () => {
      ours = false
      log.warn(
        { run, part: seatName },
        'the heartbeats of this process came too late; another process takes this role over',
      )
      inTurn(async () => {
        await end()
        if (!ours) options.onStanding?.('standing-by')
      })
    },
    onError: fail,
  })
  seated(seat)
  if (!ours) options.onStanding?.('standing-by')
  return async () => {
    ours = false
    await turn
    await end()
    await seat.release()
  }
}
