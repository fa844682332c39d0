/**
 * Writes a log's tables in transactions, one after the other; each is conditional on the writer's lease.
 *
 * in   writes        out  true once they are on disk; false, and nothing written, if another writer has the lease
 * Invariant: a transaction is written whole or not at all. If lmdb gives a transaction up (MDB_BAD_TXN), the log is
 * opened again and the transaction is repeated, up to three attempts in all: after such an error lmdb's list of free
 * pages in memory contradicts the file, and later writes through the same handle would end the process.
 */
import { createLog } from '../../log'
import { within } from '../../within'
import { allocate, bytesOfTransaction, cutUnused } from './allocate'
import { lmdbErrors } from './errors'
import { fromMeta, metaValue } from './metaValue'
import { openStore, type Store } from './store'
import { causeOf, releaseLease } from './writerLease'

export type Write =
  | { readonly table: 'records'; readonly key: Buffer; readonly value: Buffer | undefined }
  | { readonly table: 'meta'; readonly key: string; readonly value: unknown }

/** lmdb's code MDB_BAD_TXN: it gave the transaction up, and nothing of it was written. */
const givenUp = -30782
/** Upper bound on the attempts at one transaction. */
const maxAttempts = 3

export class LeasedStore {
  #store: Store
  #isOpen = true

  /**
   * Starts with open tables and a lease that this process holds.
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

  /**
   * The log's open tables. Read this property at each use: a repeated transaction opens the log, and its tables, again.
   * @throws TroupeError bus.reopening while the log is being opened again
   */
  get store(): Store {
    if (!this.#isOpen) throw lmdbErrors.reopening(this.#store.directory)
    return this.#store
  }

  /**
   * Releases the lease, and cuts off what was allocated and not used. Resolves with false if this process could not
   * release it: another writer has it, or the disk is full (then the lease expires when this process ends).
   */
  async release(): Promise<boolean> {
    const { directory, root, meta } = this.store
    try {
      allocate(directory, root, bytesOfTransaction([]))
    } catch {
      return false
    }
    if (!(await releaseLease(this.store, this.epoch))) return false
    // Runs in a transaction, so that no other process writes meanwhile.
    root.transactionSync(() => {
      if (fromMeta(directory, 'writer', meta.get('writer')) === null) cutUnused(directory, root)
    })
    return true
  }

  close(): Promise<void> {
    return this.#store.root.close()
  }

  /**
   * Writes one transaction; resolves with false if another writer has the lease. @throws lmdb's error; TroupeError
   * bus.disk_full, bus.file_too_large, bus.write_stalled, or an error of opening the log again
   */
  async commit(writes: readonly Write[]): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      const { meta, records, root, directory } = this.#store
      allocate(directory, root, bytesOfTransaction(writes))
      try {
        const written = meta.ifVersion('writer', this.epoch, () => {
          for (const write of writes) {
            if (write.table === 'meta') void meta.put(write.key, metaValue(write.key, write.value))
            else if (write.value) void records.put(write.key, write.value)
            else void records.remove(write.key)
          }
        })
        return await within(written, this.writeTimeoutMs, () => lmdbErrors.stalled(directory, this.writeTimeoutMs))
      } catch (thrown) {
        const cause = await causeOf(thrown)
        if ((cause as { code?: unknown }).code !== givenUp || attempt === maxAttempts) throw cause
        createLog('bus').warn({ directory, err: cause, attempt }, 'lmdb gave a transaction up; the log is opened again')
        this.#isOpen = false
        // The close is awaited: while the old handle is open, lmdb returns the same environment again, with the same
        // list of free pages.
        await root.close()
        this.#store = openStore(directory, 'write', () => true, 'branches')
        this.#isOpen = true
      }
    }
  }
}
