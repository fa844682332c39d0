/**
 * Appends zeros to lmdb's data file before a transaction, so that the file has disk space for all pages that the
 * transaction adds.
 *
 * in   the log's open tables, the writes of a transaction      out  a data file that is long enough, or bus.disk_full,
 *      bus.file_too_large
 * Invariant: lmdb writes only to pages that already have disk space. Reason: lmdb 3.5.6 does not survive a failed
 * write. It formats the error into a buffer of 100 bytes, which is too short (`last_error` in mdb.c), and a signal ends
 * the process. Exception: on a copy-on-write file system (btrfs, ZFS) such a write may still fail.
 */
import { closeSync, openSync, statSync, truncateSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import type { RootDatabase } from 'lmdb'
import { isFileTooLarge, isOutOfSpace } from '../../../sandbox/outOfSpace'
import { lmdbErrors } from './errors'

const pageBytes = 4096
/** Pages that a transaction touches beside those of its writes: branches, the tree of free pages, meta data. */
const pagesOfTransaction = 32
/** Pages that a write touches at most in a tree of usual depth: a leaf, a branch, and the halves of a split. */
const pagesOfWrite = 4
/** Pages that the removal of one chunk touches: a trim removes neighbouring chunks, and no page splits. */
const pagesOfDrop = 1
/** Bytes allocated beyond what is needed, if the disk has room: a sixteenth of the file, between these bounds. */
const [leastAhead, mostAhead] = [192 * 1024, 16 * 1024 * 1024]
const zeros = Buffer.alloc(256 * 1024)

/**
 * Upper bounds on the expired chunks that one transaction removes from a partition, by number and by bytes. Appends
 * then wait only briefly for the transaction, and what it writes, such as 8 bytes for each freed page, fits into the
 * least reserve of a run (1 MiB), so that expired records can be removed as long as the run lasts.
 */
export const trimMost = { chunks: 192, bytes: 64 * 1024 * 1024 }

/** Upper bound on the bytes that a transaction with these writes adds to the file. */
export function bytesOfTransaction(writes: readonly { readonly value: unknown }[]): number {
  let pages = pagesOfTransaction
  for (const { value } of writes) {
    pages += value === undefined ? pagesOfDrop : pagesOfWrite
    if (value instanceof Uint8Array) pages += Math.ceil(value.length / pageBytes)
  }
  return pages * pageBytes
}

/** Makes the data file long enough for `bytes` more. @throws TroupeError bus.disk_full, bus.file_too_large */
export function allocate(directory: string, root: RootDatabase<Buffer, string>, bytes: number): void {
  const path = join(directory, 'data.mdb')
  const { lastPageNumber, pageSize } = sizesOf(root)
  const needed = (lastPageNumber + 1) * pageSize + bytes
  const { size } = statSync(path)
  if (size >= needed) return
  const ahead = Math.min(mostAhead, Math.max(leastAhead, Math.floor(size / 16 / pageSize) * pageSize))
  const { end, cause } = fillTo(path, size, needed + ahead)
  if (end < needed) throw lmdbErrors.short(directory, cause, needed - end)
}

/** Truncates the data file after its last used page. */
export function cutUnused(directory: string, root: RootDatabase<Buffer, string>): void {
  const { lastPageNumber, pageSize } = sizesOf(root)
  truncateSync(join(directory, 'data.mdb'), (lastPageNumber + 1) * pageSize)
}

const sizesOf = (root: RootDatabase<Buffer, string>) =>
  root.getStats() as { readonly lastPageNumber: number; readonly pageSize: number }

/**
 * Writes zeros from byte `from` of a file up to `to`, or as far as disk space and file size limits allow; returns
 * where they end, and the error that ended them. Holes would not do: they get disk space only when they are written.
 */
export function fillTo(path: string, from: number, to: number): { readonly end: number; readonly cause?: unknown } {
  const file = openSync(path, 'r+')
  try {
    let at = from
    while (at < to) at += writeSync(file, zeros, 0, Math.min(zeros.length, to - at), at)
    return { end: at }
  } catch (thrown) {
    if (!isOutOfSpace(thrown) && !isFileTooLarge(thrown)) throw thrown
    return { end: statSync(path).size, cause: thrown }
  } finally {
    closeSync(file)
  }
}
