/**
 * A log's tables as their writer has them: transactions, one after the other, on condition of the writer's lease.
 *
 * in   writes        out  true once they are on disk; false, and nothing written, if another writer has the lease
 * Invariant: a transaction is written whole or not at all. One that lmdb gives up (MDB_BAD_TXN) is repeated after the log
 * was opened again: lmdb's list of free pages in memory contradicts the file then, and later writes through the same handle
 * would end the process.
 */
import { createLog } from '../../log'
import { lmdbErrors } from './errors'
import { openStore, type Store } from './store'
import { causeOf } from './writerLease'

export type Write =
  | { readonly table: 'records'; readonly key: Buffer; readonly value: Buffer | undefined }
  | { readonly table: 'meta'; readonly key: string; readonly value: unknown }

/** lmdb's code MDB_BAD_TXN: it gave the transaction up, and nothing of it was written. */
const givenUp = -30782
/** Upper bound on how often one transaction is tried. */
const maxAttempts = 3

export class LeasedStore {
  #store: Store

  /**
   * @param epoch version of the lease's entry, on which every transaction is conditional
   * @param writeTimeoutMs upper bound on the time of a transaction, ms
   */
  constructor(
    store: Store,
    private readonly epoch: number,
    private readonly writeTimeoutMs: number,
  ) {
    this.#store = store
  }

  /** The tables. Ask for them at each use: after a repeated transaction they are others. */
  get store(): Store {
    return this.#store
  }

  /** @throws lmdb's error; TroupeError bus.write_stalled */
  async commit(writes: readonly Write[]): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      const { meta, records, root, directory } = this.#store
      try {
        const written = meta.ifVersion('writer', this.epoch, () => {
          for (const write of writes) {
            if (write.table === 'meta') void meta.put(write.key, write.value)
            else if (write.value) void records.put(write.key, write.value)
            else void records.remove(write.key)
          }
        })
        return await this.inTime(written)
      } catch (thrown) {
        const cause = await causeOf(thrown)
        if ((cause as { code?: unknown }).code !== givenUp || attempt === maxAttempts) throw cause
        createLog('bus').warn({ directory, err: cause, attempt }, 'lmdb gave a transaction up; the log is opened again')
        // No read or write is pending, so lmdb closes the log before this call returns.
        void root.close()
        this.#store = openStore(directory, 'write', () => true)
      }
    }
  }

  private async inTime<T>(written: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(lmdbErrors.stalled(this.#store.directory, this.writeTimeoutMs)),
        this.writeTimeoutMs,
      )
    })
    try {
      return await Promise.race([written, late])
    } finally {
      clearTimeout(timer)
    }
  }
}
