/**
 * Errors of a log directory, and the check of its file system.
 *
 * in   a directory, an error of lmdb      out  a TroupeError
 */
import { rmSync, type Stats, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isFileTooLarge, isOutOfSpace } from '../../../sandbox/outOfSpace'
import { needText } from '../../disk/freeSpace'
import { whose } from '../../disk/pathKind'
import { asError, TroupeError } from '../../errors'

/** statfs(2) types of network file systems: locks and mapped files of another machine are unreliable there. */
const networkFileSystems: Readonly<Record<number, string>> = {
  26985: 'NFS',
  20859: 'SMB',
  4283649346: 'CIFS',
  4266872130: 'SMB 2',
  1702057286: 'FUSE',
  16914839: '9p',
  12805120: 'Ceph',
  1397113167: 'AFS',
  198183888: 'Lustre',
  1952539503: 'OCFS2',
  18225520: 'GFS2',
}

const damageHint =
  'if this is a copy, copy the directory again, in full, while no run writes it; else save what is before the damage with `troupe replay salvage RUN`'

/** Returns the end of a sentence that begins with a path: cannot be opened, why, and whose the file is. */
export const refusedOpening = (mode: 'write' | 'read', code: string, stats: Stats): string =>
  `cannot be opened for ${mode === 'write' ? 'writing' : 'reading'} (${code}): ${whose(stats)}`

export const lmdbErrors = {
  notALog: (directory: string, why: string): TroupeError =>
    new TroupeError('bus.not_a_log', {
      boundary: 'bus',
      retriable: false,
      message: `${directory} does not contain a log of Troupe: ${why}`,
      hint: 'name the directory of a run, or an empty one for a new log',
    }),

  /** `why`: the end of the sentence that begins with the path; names the owner and the mode of the file. */
  noAccess: (path: string, why: string): TroupeError =>
    new TroupeError('bus.no_access', {
      boundary: 'bus',
      retriable: false,
      message: `${path} ${why}`,
      hint: 'run as the owner of the log, or let its owner or root give this user the right (`chown`, `chmod`)',
    }),

  /** `why`: the end of the sentence that begins with the path, such as `is a directory, not a file`. */
  badLock: (path: string, why: string): TroupeError =>
    new TroupeError('bus.bad_lock', {
      boundary: 'bus',
      retriable: false,
      message: `the lock file ${path} ${why}; expected a file that this user can read and write, or none`,
      hint: 'end the processes that use the log, then remove the lock file (it holds no data, and the next process makes it), or give it and its directory to this user (`chown`)',
    }),

  torn: (directory: string, why: string, cause?: unknown): TroupeError =>
    new TroupeError('bus.torn', {
      boundary: 'bus',
      retriable: false,
      message: `the log in ${directory} is damaged: ${why}`,
      hint: damageHint,
      cause,
    }),

  damagedPage: (directory: string, page: number, why: string): TroupeError =>
    lmdbErrors.torn(directory, `page ${page} of data.mdb: ${why}`),

  locked: (directory: string, pid: number): TroupeError =>
    new TroupeError('bus.locked', {
      boundary: 'bus',
      retriable: true,
      message: `process ${pid}${pid === process.pid ? ' (this one)' : ''} is writing the log in ${directory}, and a log can have only one writer`,
      hint: 'end that process, or close its bus; or open the log for reading',
    }),

  fenced: (directory: string): TroupeError =>
    new TroupeError('bus.fenced', {
      boundary: 'bus',
      retriable: false,
      message: `another process has taken over the log in ${directory}; this write was not made`,
      hint: 'stop one of the two processes, then open the log again',
    }),

  newerFormat: (directory: string, found: number, known: number): TroupeError =>
    new TroupeError('bus.newer_format', {
      boundary: 'bus',
      retriable: false,
      message: `the log in ${directory} has the format ${found}, but this version reads formats up to ${known}; nothing was changed`,
      hint: 'use the version of Troupe that wrote the log, or a newer one',
    }),

  readOnly: (directory: string): TroupeError =>
    new TroupeError('bus.read_only', {
      boundary: 'bus',
      retriable: false,
      message: `the log in ${directory} was opened for reading, so it cannot be written`,
    }),

  diskFull: (directory: string, cause: unknown, needBytes?: number): TroupeError =>
    new TroupeError('bus.disk_full', {
      boundary: 'bus',
      retriable: true,
      message: `the disk has no space left for the log in ${directory}, or a quota is used up: ${needText(directory, needBytes)}; this write was not made, earlier ones were`,
      hint: `free space on the file system of ${directory}, or raise the quota of this user, then try again`,
      cause,
    }),

  fileTooLarge: (directory: string, cause: unknown): TroupeError =>
    new TroupeError('bus.file_too_large', {
      boundary: 'bus',
      retriable: false,
      message: `the log in ${directory} has reached the largest size that a file may have here; this write was not made, earlier ones were`,
      hint: 'raise the limit on file sizes of this process (`ulimit -f unlimited`), or use a file system with larger files; then resume the run with --resume',
      cause,
    }),

  /** Returns the error for a data file that could not be made longer by `needBytes`. */
  short: (directory: string, cause: unknown, needBytes: number): TroupeError =>
    isFileTooLarge(cause)
      ? lmdbErrors.fileTooLarge(directory, cause)
      : lmdbErrors.diskFull(directory, cause, needBytes),

  reopening: (directory: string): TroupeError =>
    new TroupeError('bus.reopening', {
      boundary: 'bus',
      retriable: true,
      message: `the log in ${directory} is being opened again after a failed write`,
      hint: 'read again',
    }),

  stalled: (directory: string, timeoutMs: number): TroupeError =>
    new TroupeError('bus.write_stalled', {
      boundary: 'bus',
      retriable: false,
      message: `a write to the log in ${directory} did not end within ${timeoutMs} ms; it may or may not have been written`,
      hint: 'check the disk, and whether another process holds the log; then open the log again',
    }),

  broken: (directory: string, cause: unknown): TroupeError =>
    new TroupeError('bus.write_failed', {
      boundary: 'bus',
      retriable: false,
      message: `the log in ${directory} could not be opened, read or written: ${asError(cause).message}; acknowledged appends are safe`,
      hint: 'remove the cause, then open the log again',
      cause,
    }),
}

/** Refuses a directory on a known network file system. @throws TroupeError bus.network_file_system */
export function requireLocalDisk(
  directory: string,
  typeOf: (path: string) => number = path => statfsSync(path).type,
): void {
  const name = networkFileSystems[typeOf(directory) >>> 0]
  if (name === undefined) return
  throw new TroupeError('bus.network_file_system', {
    boundary: 'bus',
    retriable: false,
    message: `${directory} is on ${name}; a log needs a disk of this machine`,
    hint: 'choose a local directory, or --bus kafka://HOST:PORT to share a log between machines',
  })
}

const probeBytes = 1024 * 1024

/**
 * Converts the error of a failed write. lmdb reports a write that was cut short by a full disk or a quota as EIO (5).
 */
export function writeError(directory: string, cause: unknown): TroupeError {
  const code = (cause as { code?: unknown } | undefined)?.code
  if (isFileTooLarge(cause)) return lmdbErrors.fileTooLarge(directory, cause)
  const full = isOutOfSpace(cause) || (code === 5 && isOutOfSpace(probe(directory)))
  return full ? lmdbErrors.diskFull(directory, cause) : lmdbErrors.broken(directory, cause)
}

/** Tries to write 1 MiB in `directory`. Returns the error if that fails, else undefined. */
function probe(directory: string): unknown {
  const path = join(directory, `.probe-${process.pid}`)
  try {
    writeFileSync(path, Buffer.alloc(probeBytes))
  } catch (thrown) {
    return thrown
  } finally {
    rmSync(path, { force: true })
  }
  return undefined
}
