/**
 * Iterates over topics as an async iterable, for code outside actors.
 *
 * in   feeds of a journal
 * out  their entries, in order within a partition, until the loop ends or the signal fires
 * Invariant: the next batch of a partition is delivered once the one before it is consumed (backpressure). A loop that
 * ends by `break` or by an error closes its subscription.
 */
import type { Entry, Feed, Journal } from './journal'

interface Batch {
  readonly entries: readonly Entry[]
  readonly consumed: () => void
}

/**
 * Iterates over the feeds' entries. Ends without an error when the signal fires; throws the error that ends a feed.
 * @param group a consumer group that only this loop uses
 */
export async function* entriesOf(
  journal: Journal,
  feeds: readonly Feed[],
  group: string,
  signal: AbortSignal,
): AsyncGenerator<Entry, void, undefined> {
  const batches: Batch[] = []
  let failure: Error | undefined
  let ended = false
  let wake = () => {}
  const onAbort = () => wake()
  const onError = (error: Error) => {
    failure = error
    wake()
  }
  const following = await journal.follow({ group, feeds, onError }, async entries => {
    if (ended) return
    await new Promise<void>(consumed => {
      batches.push({ entries, consumed })
      wake()
    })
  })
  signal.addEventListener('abort', onAbort)
  try {
    for (;;) {
      if (failure !== undefined) throw failure
      if (signal.aborted) return
      const batch = batches[0]
      if (batch === undefined) {
        await new Promise<void>(resolve => {
          wake = resolve
        })
        continue
      }
      for (const entry of batch.entries) {
        yield entry
        if (signal.aborted) return
      }
      batches.shift()
      batch.consumed()
    }
  } finally {
    ended = true
    signal.removeEventListener('abort', onAbort)
    // Closing waits for running handlers, and those wait for their batches to be consumed.
    for (const batch of batches.splice(0)) batch.consumed()
    await following.close()
  }
}
