/**
 * Puts a deadline on work that cannot be cancelled.
 *
 * in   a promise, ms, the error to reject with      out  the promise's outcome, or that error
 * Invariant: if synchronous code blocks the event loop, however long, at most a tenth of the deadline passes meanwhile
 * (awakeTimer.ts).
 */
import { afterAwake } from './awakeTimer'

export async function within<T>(work: T | Promise<T>, deadlineMs: number, late: () => Error): Promise<T> {
  let cancel = () => {}
  const deadline = new Promise<never>((_, reject) => {
    cancel = afterAwake(deadlineMs, () => reject(late()))
  })
  try {
    return await Promise.race([work, deadline])
  } finally {
    cancel()
  }
}
