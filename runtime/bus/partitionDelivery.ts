/**
 * Delivers the records of one owned partition to a handler, batch after batch.
 *
 * in   wake, pause, resume, stop       out  handler calls, each after the one before has resolved
 * Invariant: at most one handler call of the partition runs at a time; none runs after `stop` has resolved.
 */
import type { BatchHandler, BusRecord } from './bus'

export interface DeliveryOptions {
  readonly begin: number
  /** Pause after each handler call, ms; records that arrive meanwhile form one batch. */
  readonly lingerMs: number
  readonly read: (offset: number) => readonly BusRecord[]
  readonly handler: BatchHandler
  /** Called once, when a read or the handler throws; the delivery has stopped then. */
  readonly onFailure: (thrown: unknown) => void
}

/** Ends the current turn of the event loop, so that I/O and timers run during a long replay. */
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

  /** Checks for new records and delivers them. */
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

  /** Stops delivery; resolves when the running handler has ended. */
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
      // `busy` is cleared in the same turn as the empty read, so that a later wake starts a new run.
      this.busy = false
    }
  }
}
