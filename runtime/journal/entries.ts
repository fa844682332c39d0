/**
 * Topics as something to loop over, for code that is no actor.
 *
 * in   feeds of a journal          out  their entries, in order within a partition, until the loop ends or the signal
 * Invariant: a batch is handed over when the one before it was consumed (back-pressure), and a loop that is left, by
 * `break` or by an error, leaves nothing behind.
 */
import type { Entry, Feed, Journal } from './journal'

interface Batch {
  readonly entries: readonly Entry[]
  readonly consumed: () => void
}

/** `group` is that of this loop alone. Ends without an error when the signal fires; throws what ends the feeds. */
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
    // Closing waits for the handlers that run, and those wait for their batches.
    for (const batch of batches.splice(0)) batch.consumed()
    await following.close()
  }
}
