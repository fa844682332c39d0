/**
 * Delivers a host's mail into its actor's mailbox.
 *
 * in   the actor, mail, ticks        out  mail in the actor's mailbox, or the error of a mail that found no slot
 * Invariants: mail waits at most `tellDeadlineMs` for a free slot of the mailbox; then `post` rejects with
 * actor.tell_timeout. The clock of this wait stands still while the log cannot be written, since the actor cannot
 * continue then. At most one tick waits: a second one would add nothing, and would take a slot from other mail.
 */
import type { ActorRef } from '../actor/system'
import type { Effects } from '../effects'
import { TroupeError } from '../errors'

const tellDeadlineMs = 60_000
/**
 * A tell (delivery to the mailbox) that times out at most this many ms early is given up, since timers are that
 * inexact.
 */
const earlyMs = 50

export interface HostMail<M> {
  post(mail: M): Promise<void>
  tick(): void
  /** Called when the actor handles a tick. */
  tickHandled(): void
}

/**
 * Creates the delivery of a host's mail. `refOf`: the actor, which need not exist before the first call. `fx`: the
 * run's monotonic clock, which stands still while the log cannot be written.
 */
export function hostMail<M>(refOf: () => ActorRef<M>, tick: M, fx: Pick<Effects, 'elapsed'>): HostMail<M> {
  let isTickQueued = false
  return {
    async post(mail) {
      const since = fx.elapsed()
      for (let deadlineMs = tellDeadlineMs; ; ) {
        try {
          return await refOf().tell(mail, { deadlineMs })
        } catch (thrown) {
          const isLate = thrown instanceof TroupeError && thrown.code === 'actor.tell_timeout'
          // Timers keep running while the clock stands still, so the tell may time out too early.
          deadlineMs = Math.ceil(tellDeadlineMs - (fx.elapsed() - since))
          if (!isLate || deadlineMs <= earlyMs) throw thrown
        }
      }
    },
    tick() {
      if (!isTickQueued) isTickQueued = refOf().tryTell(tick)
    },
    tickHandled() {
      isTickQueued = false
    },
  }
}
