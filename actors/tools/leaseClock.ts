/**
 * The clock of the dispatcher's leases: active time, without the time in which the dispatcher read a backlog.
 *
 * in   effects at every input and tick, the end of every batch        out  the time, ms
 * Invariant: a report that stands behind a backlog does not come too late for the lease that it renews.
 */
import { ActiveClock } from '../../runtime/activeClock'
import type { Effects } from '../../runtime/effects'

/** Number of inputs in a batch from which its reader counts as behind; a host's batch has at most 512. */
const BACKLOG_INPUTS = 256

export class LeaseClock extends ActiveClock {
  private inputs = 0
  private settledAt = 0
  private backlogMs = 0

  /** Time that counts against leases. */
  get leaseNow(): number {
    return this.now - this.backlogMs
  }

  /** Advances the clock at an input. `isOfBatch`: the input came in a batch, and counts towards BACKLOG_INPUTS. */
  input(fx: Pick<Effects, 'now' | 'elapsed'>, isOfBatch: boolean): void {
    this.tick(fx)
    if (isOfBatch) this.inputs++
  }

  /** Ends a batch, or a time without batches; the time of a batch that was a backlog does not count against leases. */
  settle(): void {
    if (this.inputs >= BACKLOG_INPUTS) this.backlogMs += this.now - this.settledAt
    this.settledAt = this.now
    this.inputs = 0
  }
}
