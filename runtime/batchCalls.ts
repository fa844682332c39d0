/**
 * Batches calls: combines items that are submitted at the same time into one call, where a call costs more than its items.
 *
 * in   items, one by one        out  each item's result
 * Invariant: one call runs at a time, with its items in the order of submission; items that come meanwhile wait for the
 * next call. Each caller waits for its own result, so the queue is bounded by the number of callers.
 */
import { asError } from './errors'

interface Asked<T, R> {
  readonly item: T
  readonly resolve: (result: R) => void
  readonly reject: (error: Error) => void
}

export interface BatchOptions {
  /** Most items per call. */
  readonly most: number
  /** True if a failed call is retried item by item, because one item may be to blame for all. */
  readonly isOfOne: (error: Error) => boolean
}

/** `call` resolves with as many results as it got items, in their order. */
export function batchCalls<T, R>(
  call: (items: readonly T[]) => Promise<readonly R[]>,
  { most, isOfOne }: BatchOptions,
): (item: T) => Promise<R> {
  const waiting: Asked<T, R>[] = []
  let running = false

  async function settle(asked: readonly Asked<T, R>[]): Promise<void> {
    try {
      const results = await call(asked.map(({ item }) => item))
      for (const [k, { resolve }] of asked.entries()) resolve(results[k]!)
    } catch (thrown) {
      const error = asError(thrown)
      if (asked.length > 1 && isOfOne(error)) for (const one of asked) await settle([one])
      else for (const { reject } of asked) reject(error)
    }
  }

  async function run(): Promise<void> {
    running = true
    // Items submitted in the same turn of the event loop go into one call.
    await new Promise(resolve => setImmediate(resolve))
    while (waiting.length > 0) await settle(waiting.splice(0, most))
    running = false
  }

  return item =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject })
      if (!running) void run()
    })
}
