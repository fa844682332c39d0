/**
 * Gathers what is asked at the same time into one call: for calls that cost more than what they carry.
 *
 * in   items, one by one        out  each item's result
 * Invariant: one call at a time, whose items are in the order in which they came; what comes meanwhile waits for the next.
 * Those who ask wait for their answer, so what waits is bounded by their number.
 */
import { asError } from './errors'

interface Asked<T, R> {
  readonly item: T
  readonly resolve: (result: R) => void
  readonly reject: (error: Error) => void
}

export interface GatherOptions {
  /** Most items of one call. */
  readonly most: number
  /** Whether a failed call is made again item by item, because one of them may be to blame for all. */
  readonly isOfOne: (error: Error) => boolean
}

/** `call` resolves with as many results as it got items, in their order. */
export function gather<T, R>(
  call: (items: readonly T[]) => Promise<readonly R[]>,
  { most, isOfOne }: GatherOptions,
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
    // Those who ask in the same turn of the event loop go together.
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
