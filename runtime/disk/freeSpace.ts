/**
 * Free space of file systems, and errors of a full disk.
 *
 * in   a directory, a failed write      out  bytes free to ordinary users; whether the disk was full
 * Invariant: nothing is written. For a directory that does not exist yet, its nearest existing parent counts.
 */
import { statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { isOutOfSpace } from '../../sandbox/outOfSpace'
import { TroupeError } from '../errors'

export interface Space {
  /** Bytes that are free to ordinary users on the file system; quotas do not count. */
  readonly freeBytes: number
  /** Size of the file system, bytes. */
  readonly bytes: number
}

const mib = 1024 * 1024

/**
 * Bounds on the reserve: bytes that stay free for facts about the pause, for other programs and for writes in progress.
 */
const leastReserve = mib
const mostReserve = 64 * mib

/** Space of the directory's file system; undefined where it cannot be read. */
export function spaceIn(directory: string): Space | undefined {
  try {
    const { bavail, blocks, bsize } = statfsSync(directory)
    // Some file systems (9p, some FUSE) report no sizes, which does not mean that the disk is full.
    return blocks === 0 ? undefined : { freeBytes: bavail * bsize, bytes: blocks * bsize }
  } catch (thrown) {
    const parent = dirname(directory)
    const isMissing = (thrown as NodeJS.ErrnoException).code === 'ENOENT'
    return isMissing && parent !== directory ? spaceIn(parent) : undefined
  }
}

/** Bytes that a run leaves free: 1 % of the file system, at least 1 MiB and at most 64 MiB. */
export const reserveOf = ({ bytes }: Space): number => Math.min(mostReserve, Math.max(leastReserve, bytes / 100))

/**
 * True if a write failed for lack of space: an error of the operating system, or one of ours with a code `….disk_full`.
 */
export function isDiskFull(thrown: unknown): boolean {
  return isOutOfSpace(thrown) || (thrown instanceof TroupeError && thrown.code.endsWith('.disk_full'))
}

/** Size for a message: `812 KiB`, `3.4 MiB`, `12.0 GiB`. */
export function sizeText(bytes: number): string {
  if (bytes < mib) return `${Math.ceil(bytes / 1024)} KiB`
  return bytes < 1024 * mib ? `${(bytes / mib).toFixed(1)} MiB` : `${(bytes / mib / 1024).toFixed(1)} GiB`
}

/** Describes the space where a write failed: `it needs 3.4 MiB, and 1.2 MiB are free`. */
export function needText(directory: string, needBytes?: number): string {
  const space = spaceIn(directory)
  const needed = needBytes === undefined ? '' : `it needs ${sizeText(needBytes)}`
  const free = space === undefined ? '' : `${sizeText(space.freeBytes)} are free`
  return [needed, free].filter(text => text !== '').join(', and ')
}
