/**
 * The writer's lease on a log: an entry of the log itself that names the process which may write.
 *
 * in   a store
 * out  the epoch (the entry's version number) on which every transaction of this writer is conditional
 * Invariant: each takeover raises the epoch, so that the previous writer writes nothing more.
 */
import { lmdbErrors } from './errors'
import { type Holder, lives, thisProcess } from './holder'
import { fromMeta, metaValue } from './metaValue'
import type { Store } from './store'

/**
 * Makes this process the writer, in one transaction. Returns the new epoch. `ownsLease`: a lease of this process may be
 * taken again.
 * @throws TroupeError bus.locked when a living process (also this one, without `ownsLease`) is the writer
 */
export function takeLease({ meta, directory }: Store, ownsLease: boolean): number {
  return meta.transactionSync(() => {
    const me = thisProcess()
    const entry = meta.getEntry('writer')
    const holder = fromMeta(directory, 'writer', entry?.value) as Holder | null | undefined
    const mine = holder?.pid === me.pid && holder.startTime === me.startTime && ownsLease
    if (holder && !mine && lives(holder, directory, me)) throw lmdbErrors.locked(directory, holder.pid)
    const epoch = (entry?.version ?? 0) + 1
    void meta.put('writer', metaValue('writer', me), epoch)
    return epoch
  })
}

/**
 * Releases the lease. Returns false when the entry cannot be written, such as on a full disk (the lease then expires
 * when this process ends), or when the lease was taken over.
 */
export async function releaseLease({ meta }: Store, epoch: number): Promise<boolean> {
  try {
    return await meta.ifVersion('writer', epoch, () => void meta.put('writer', metaValue('writer', null), epoch))
  } catch (thrown) {
    await causeOf(thrown)
    return false
  }
}

/** Finds the cause of a rejected write: lmdb's own error says only that the commit failed. */
export async function causeOf(thrown: unknown): Promise<unknown> {
  const { commitError } = thrown as { commitError?: Promise<never> }
  return commitError ? await commitError.catch(cause => cause) : thrown
}
