/**
 * Hands the records of one owned partition to a handler, batch after batch.
 *
 * in   wakes, pause, resume, stop       out  handler calls, each after the one before has resolved
 * Invariant: at most one handler call of this partition runs; after `stop` has resolved none will.
 */
import type { BatchHandler, BusRecord } from './bus'

export interface DeliveryOptions {
  readonly begin: number
  /** At least so long between two handler calls; records that come meanwhile go together. */
  readonly lingerMs: number
  readonly read: (offset: number) => readonly BusRecord[]
  readonly handler: BatchHandler
  /** Called once, when reading or the handler throws; the delivery has stopped by then. */
  readonly onFailure: (thrown: unknown) => void
}

/** Ends the current turn of the event loop, so that a long replay leaves room for I/O and timers. */
const nextTurn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))
const sleep = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

export class PartitionDelivery {
  private offset: number
  private busy = false
  private paused = false
  private stopped = false
  private idle: Promise<void> = Promise.resolve()

  constructor(private readonly options: DeliveryOptions) {
    this.offset = options.begin
  }

  /** There may be records. */
  wake(): void {
    if (this.busy || this.paused || this.stopped) return
    this.busy = true
    this.idle = this.run()
  }

  pause(): void {
    this.paused = true
  }

  resume(): void {
    this.paused = false
    this.wake()
  }

  /** Resolves when the handler that runs has ended. */
  stop(): Promise<void> {
    this.stopped = true
    return this.idle
  }

  private async run(): Promise<void> {
    try {
      while (!this.stopped && !this.paused) {
        const records = this.options.read(this.offset)
        const last = records[records.length - 1]
        if (!last) break
        await this.options.handler(records)
        this.offset = last.offset + 1
        await (this.options.lingerMs > 0 ? sleep(this.options.lingerMs) : nextTurn())
      }
    } catch (thrown) {
      this.stopped = true
      this.options.onFailure(thrown)
    } finally {
      // In the same turn as the empty read: a wake that comes later starts a new run.
      this.busy = false
    }
  }
}
