/**
 * Measures how long messages wait for this process's actors.
 *
 * in   the actors' metrics: depths of mailboxes, sampled waits in them
 * out  the latest waits, for the rehearsal's clock; the deepest mailbox and the longest wait, for the report
 * Invariant: it only reads metrics; a run does the same with and without it.
 */
import type { MetricsRegistry, Reading } from '../../runtime/metrics'

export interface Backlog {
  /** Registry that the caller gives to the run, whose actors report their depths and waits to it. */
  readonly metrics: MetricsRegistry
  /**
   * Returns the longest time in ms that a message handled since the last call waited in its mailbox. If none was
   * handled, returns the previous result while messages wait, else 0.
   */
  waitMs(): number
  readonly deepest: { readonly actor: string; readonly messages: number }
  readonly longestWait: { readonly actor: string; readonly seconds: number }
}

export function watchBacklog(): Backlog {
  const depths: (() => readonly Reading[])[] = []
  let deepest = { actor: '', messages: 0 }
  let longestWait = { actor: '', seconds: 0 }
  /** Longest wait since the last call of `waitMs`; undefined while no message was handled. */
  let latest: number | undefined
  let before = 0
  return {
    get deepest() {
      return deepest
    },
    get longestWait() {
      return longestWait
    },
    waitMs() {
      let waiting = 0
      for (const { labels, value } of depths.flatMap(read => [...read()])) {
        waiting += value
        if (value > deepest.messages) deepest = { actor: labels.actor ?? '', messages: value }
      }
      // A message's wait is known only once it is handled: while an actor works on one for long, the previous wait
      // stands.
      before = latest ?? (waiting > 0 ? before : 0)
      latest = undefined
      return 1000 * before
    },
    metrics: {
      contentType: 'text/plain',
      counter: () => ({ add() {} }),
      gauge(name, _help, _labels, read) {
        if (name === 'troupe_actor_mailbox_depth' && read !== undefined) depths.push(read)
        return { set() {} }
      },
      histogram: name => ({
        observe({ actor = '' }, seconds) {
          if (name !== 'troupe_actor_wait_seconds') return
          latest = Math.max(latest ?? 0, seconds)
          if (seconds > longestWait.seconds) longestWait = { actor, seconds }
        },
      }),
      processMetrics() {},
      render: async () => '',
    },
  }
}
