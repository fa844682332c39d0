/**
 * Batches calls whose own cost exceeds that of their items: items that are submitted in one turn of the event loop, or
 * while a call runs, share a call, up to `most` of them.
 *
 * in   items, one by one        out  each item's result
 * Invariant: one call runs at a time, with its items in the order of submission; items submitted meanwhile wait for a
 * later call. Each caller waits for its own result, so the queue is bounded by the number of callers.
 */
import { asError } from './errors'

interface Asked<T, R> {
  readonly item: T
  readonly resolve: (result: R) => void
  readonly reject: (error: Error) => void
}

export interface BatchOptions {
  /** Upper bound on the items of one call. */
  readonly most: number
  /** True for an error that one item may have caused for all; the failed call's items are then retried one by one. */
  readonly isOfOne: (error: Error) => boolean
}

/** Returns the function that submits an item. `call` must resolve with one result for each item, in their order. */
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
