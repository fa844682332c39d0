/**
 * Appends facts to a journal in batches of 256 or more; the last batch may be smaller.
 *
 * in   facts        out  how many were written
 */
import type { Fact } from '../../messages/facts'
import type { Journal } from '../../runtime/journal/journal'

const atOnce = 256

export function factWriter(journal: Journal) {
  let batch: Fact[] = []
  let written = 0
  async function flush(): Promise<void> {
    await journal.append(batch)
    written += batch.length
    batch = []
  }
  return {
    async write(...facts: readonly Fact[]): Promise<void> {
      batch.push(...facts)
      if (batch.length >= atOnce) await flush()
    },
    /** Appends the facts of the unfinished batch. Resolves when all facts are durable. */
    flush,
    written: () => written,
  }
}
