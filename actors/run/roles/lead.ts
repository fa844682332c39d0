/**
 * Leads a part of a run that one process has at a time, and stands by while another process has it.
 *
 * in   changes of the seat's holder        out  the part begun when this process gets the seat, ended when it loses it
 * Invariant: a part is begun only after the previous one of this process has ended. While the holder of the seat is in
 * doubt, the part writes nothing (`mayAct`).
 */
import { type ElectedRole, joinElection } from '../../../runtime/bus/leaderElection'
import { asError } from '../../../runtime/errors'
import type { RunOptions } from '../run'
import type { Scope } from './scope'

/** Begins the part. `mayAct`: to be asked before each write. `again`: ends the part and begins it anew. Returns what to close. */
export type Begin = (mayAct: () => Promise<boolean>, again: () => void) => Promise<Scope>

/** Resolves once this process has the seat or stands by, with the function that ends either. */
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
      log.warn({ run, part: seatName }, 'another process claimed this part without its seat; it is begun anew')
      await end()
      active = await begin(confirmLeader, again)
    })
  const seat = await joinElection(bus, run, seatName, {
    onElected: () => {
      ours = true
      inTurn(async () => {
        if (!ours) return // lost again while the one before was ended
        const { confirmLeader } = await opened
        options.onStanding?.('active')
        active = await begin(confirmLeader, again)
      })
    },
    onLost: () => {
      ours = false
      log.warn({ run, part: seatName }, 'this process was not heard for too long; another one takes over')
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
