/**
 * Metrics of actors: waiting and handling times of messages, depths of mailboxes, restarts, dead letters.
 * Invariant: metrics cost once per bundle (the messages that go through nact together, cell.ts), not once per message:
 * the handled messages of a bundle are counted in one step, and one of them is timed.
 */
import type { MetricsRegistry } from '../metrics'

export interface ActorMeter {
  /** Adds the number of messages handled since the last call. */
  handled(messages: number): void
  /**
   * Records the times of one message. `waitMs`: from its sending to its handler call, the wait for room in the mailbox
   * included. `handleMs`: in the handler.
   */
  timed(waitMs: number, handleMs: number): void
  restarted(): void
  deadLetter(reason: string): void
  ended(): void
}

export interface Instruments {
  /**
   * Returns the meter of the actor at `path`. `depth` is called whenever metrics are scraped, and returns the number of
   * messages in the actor's mailbox.
   */
  of(path: string, depth: () => number): ActorMeter
}

const secondsBuckets = [0.0001, 0.001, 0.01, 0.1, 1, 10, 100]

export function instruments(metrics: MetricsRegistry): Instruments {
  const depths = new Map<string, () => number>()
  const messages = metrics.counter('troupe_actor_messages_total', 'Messages handled.', ['actor'])
  const restarts = metrics.counter('troupe_actor_restarts_total', 'Restarts after failures.', ['actor'])
  const letters = metrics.counter('troupe_actor_dead_letters_total', 'Messages not handled.', ['actor', 'reason'])
  const waits = metrics.histogram(
    'troupe_actor_wait_seconds',
    'Time in the mailbox, sampled.',
    ['actor'],
    secondsBuckets,
  )
  const takes = metrics.histogram(
    'troupe_actor_handle_seconds',
    'Time in the handler, sampled.',
    ['actor'],
    secondsBuckets,
  )
  metrics.gauge('troupe_actor_mailbox_depth', 'Messages accepted and not handled.', ['actor'], () =>
    [...depths].map(([actor, depth]) => ({ labels: { actor }, value: depth() })),
  )
  return {
    of(actor, depth) {
      depths.set(actor, depth)
      return {
        handled: n => messages.add({ actor }, n),
        timed(waitMs, handleMs) {
          waits.observe({ actor }, waitMs / 1000)
          takes.observe({ actor }, handleMs / 1000)
        },
        restarted: () => restarts.add({ actor }),
        deadLetter: reason => letters.add({ actor, reason }),
        ended: () => depths.delete(actor),
      }
    },
  }
}
