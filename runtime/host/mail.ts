/**
 * How a host's mail gets into its actor's mailbox.
 *
 * in   the actor, mail, ticks        out  mail that has a place
 * Invariants: mail waits at most `tellDeadlineMs` for a place, but as long as it takes while the log cannot be written, for
 * then its actor cannot go on. At most one tick waits: it says all that further ones would, and they would take the places
 * of other mail.
 */
import type { ActorRef } from '../actor/system'
import { TroupeError } from '../errors'

const tellDeadlineMs = 60_000

export interface HostMail<M> {
  post(mail: M): Promise<void>
  tick(): void
  /** Called when the actor handles a tick. */
  tickHandled(): void
}

/** `refOf`: the actor, which need not exist before the first call. `isPaused`: true while the log cannot be written. */
export function hostMail<M>(refOf: () => ActorRef<M>, tick: M, isPaused: () => boolean = () => false): HostMail<M> {
  let isTickQueued = false
  return {
    async post(mail) {
      for (;;) {
        try {
          return await refOf().tell(mail, { deadlineMs: tellDeadlineMs })
        } catch (thrown) {
          const isLate = thrown instanceof TroupeError && thrown.code === 'actor.tell_timeout'
          if (!isLate || !isPaused()) throw thrown
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
