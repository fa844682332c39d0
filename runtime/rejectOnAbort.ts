/**
 * Rejects as soon as the signal is aborted, else settles as the work does. Aborted work runs on, but its result is
 * ignored.
 */
import { asError } from './errors'

export async function rejectOnAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  work.catch(() => {}) // the race reports the rejection, or its result is ignored
  let onAbort = () => {}
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(asError(signal.reason))
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
  })
  return Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', onAbort))
}
