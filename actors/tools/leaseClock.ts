/**
 * Clock of the dispatcher's leases: the time in which the process ran, less the time in which the dispatcher read a
 * backlog of inputs.
 *
 * in   effects at every input and tick, the end of every batch        out  the time, ms
 * Invariant: no lease expires because the report that renews it had to wait behind a backlog.
 */
import { ActiveClock } from '../../runtime/activeClock'
import type { Effects } from '../../runtime/effects'

/** Minimum number of inputs of a batch that counts as a backlog; a host's batch has at most 512. */
const BACKLOG_INPUTS = 256

export class LeaseClock extends ActiveClock {
  private inputs = 0
  private settledAt = 0
  private backlogMs = 0

  /** Time in ms that counts against leases. */
  get leaseNow(): number {
    return this.now - this.backlogMs
  }

  /** Advances the clock at an input. `isOfBatch`: the input came in a batch, and counts towards BACKLOG_INPUTS. */
  input(fx: Pick<Effects, 'now' | 'elapsed'>, isOfBatch: boolean): void {
    this.tick(fx)
    if (isOfBatch) this.inputs++
  }

  /**
   * Called at the end of each batch and at each tick. If BACKLOG_INPUTS or more inputs came since the last call, the
   * time since that call does not count against leases.
   */
  settle(): void {
    if (this.inputs >= BACKLOG_INPUTS) this.backlogMs += this.now - this.settledAt
    this.settledAt = this.now
    this.inputs = 0
  }
}
