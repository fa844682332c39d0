/**
 * Makes or checks the lock file of a log, lock.mdb, before lmdb opens it.
 *
 * in   a log's directory, the mode      out  a lock file that lmdb can use, or a named error
 * Invariants: whatever makes lmdb's opening fail is found here first, since the npm package (3.5.6) uses freed memory
 * when an opening fails (`EnvWrap::openEnv`), which ends the process with a signal. A lock file that this process has
 * open is not opened here: closing any handle of it would release the locks that the process has on it.
 */
import {
  closeSync,
  constants,
  fchownSync,
  openSync,
  readFileSync,
  readSync,
  type Stats,
  statSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { isFileTooLarge, isOutOfSpace } from '../../../sandbox/outOfSpace'
import { spaceIn } from '../../disk/freeSpace'
import { pathKind, refusal, whose } from '../../disk/pathKind'
import { lmdbErrors, refusedOpening } from './errors'
import { magic } from './pages/pageFile'

/** Size of the lock file that `makeLock` creates, and of the one that lmdb creates, bytes. */
const [lockBytes, lmdbLockBytes] = [12 * 1024, 8272]
/** Upper bound on the size of a lock file of lmdb, bytes: it has 64 for each reader. A larger file is refused. */
const mostLockBytes = 64 * 1024 * 1024
/** Minimum number of free bytes of the disk at which a new log is started. */
const leastForNew = 1024 * 1024

/**
 * Creates lmdb's lock file, with its disk space, if there is none: lmdb would map it with holes, and a hole that the
 * disk cannot fill ends the process with SIGBUS. Checks one that is there.
 * @throws TroupeError bus.bad_lock; bus.disk_full for a new log when less than 1 MiB is free, or when the lock file
 * does not fit; bus.file_too_large
 */
export function prepareDirectory(directory: string, mode: 'write' | 'read', isNew: boolean): void {
  if (isNew && (spaceIn(directory)?.freeBytes ?? leastForNew) < leastForNew) {
    throw lmdbErrors.diskFull(directory, undefined, leastForNew)
  }
  const path = join(directory, 'lock.mdb')
  const found = pathKind(path)
  switch (found.kind) {
    case 'nothing':
      makeLock(directory, path, mode)
      break
    case 'directory':
      throw lmdbErrors.badLock(path, 'is a directory, not a file')
    case 'fault':
      if (mode === 'write' || !isUnlocked(found.code)) throw lmdbErrors.badLock(path, found.why)
      break
    case 'file': {
      const { size } = found.stats
      if (size > mostLockBytes) throw lmdbErrors.badLock(path, `has ${size} bytes, which is no lock file of lmdb`)
      const code = refusal(path, constants.R_OK | constants.W_OK)
      if (code !== undefined && !(mode === 'read' && isUnlocked(code))) {
        throw lmdbErrors.badLock(path, refusedOpening(mode, code, found.stats))
      }
      // lmdb makes a lock file anew, whatever it holds, unless another process has it open.
      const holder = code === undefined ? holderOf(found.stats) : undefined
      if (holder !== undefined && !isWhole(path, size)) {
        throw lmdbErrors.badLock(path, `was overwritten or cut off while process ${holder} uses it`)
      }
      break
    }
  }
  // lmdb creates the data file of a new log, so this process must be allowed to write the directory.
  const code = isNew && mode === 'write' ? refusal(directory, constants.W_OK | constants.X_OK) : undefined
  if (code !== undefined)
    throw lmdbErrors.noAccess(directory, `cannot be written (${code}): ${whose(statSync(directory))}`)
}

/** True for an error on the lock file with which lmdb still opens the log for reading, without a lock. */
const isUnlocked = (code: string | undefined): boolean => code === 'EACCES' || code === 'EROFS'

function makeLock(directory: string, path: string, mode: 'write' | 'read'): void {
  let handle: number | undefined
  try {
    handle = openSync(path, 'wx')
    writeSync(handle, Buffer.alloc(lockBytes))
    giveToOwner(handle, directory)
  } catch (thrown) {
    if (isOutOfSpace(thrown)) throw lmdbErrors.diskFull(directory, thrown, lockBytes)
    if (isFileTooLarge(thrown)) throw lmdbErrors.fileTooLarge(directory, thrown)
    const { code = 'unknown error' } = thrown as NodeJS.ErrnoException
    // EEXIST means that another process has just made the lock file. A reader may lack the right to make it.
    if (code === 'EEXIST' || (mode === 'read' && isUnlocked(code))) return
    throw lmdbErrors.badLock(path, `cannot be created (${code})`)
  } finally {
    if (handle !== undefined) closeSync(handle)
  }
}

/**
 * Returns the pid of another process that has the lock file open, from /proc/locks; undefined if there is none, if this
 * process has it open too, or if there is no /proc/locks.
 */
function holderOf({ ino }: Stats): number | undefined {
  let list: string
  try {
    list = readFileSync('/proc/locks', 'utf8')
  } catch {
    return undefined
  }
  const holders = [...list.matchAll(/POSIX +ADVISORY +READ +(\d+) +\w+:\w+:(\d+) /g)]
    .filter(([, , file]) => file === String(ino))
    .map(([, pid]) => Number(pid))
  return holders.includes(process.pid) ? undefined : holders[0]
}

function isWhole(path: string, size: number): boolean {
  if (size < lmdbLockBytes) return false
  const head = Buffer.alloc(4)
  const handle = openSync(path, 'r')
  try {
    return readSync(handle, head) === 4 && head.readUInt32LE() === magic
  } finally {
    closeSync(handle)
  }
}

/**
 * If this process is root: makes the owner of the log the owner of the new lock file, since that user could not write
 * the log otherwise.
 */
function giveToOwner(lock: number, directory: string): void {
  if (process.getuid?.() !== 0) return
  try {
    const { uid, gid } = statSync(join(directory, 'data.mdb'))
    if (uid !== 0) fchownSync(lock, uid, gid)
  } catch {
    // The log is new, or this root may not change owners: the file stays root's.
  }
}
