/**
 * Errors of a log directory, and the checks before it is opened. The checks run before lmdb maps the file: mapping a
 * file that is too short or not lmdb's would end the process with a signal instead of an error.
 *
 * in   a directory, an error of lmdb      out  a TroupeError, or the sizes of the data file
 */
import { closeSync, existsSync, fstatSync, openSync, readSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { TroupeError } from '../../errors'

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

const magic = 0xbeefc0de
/** Offset of the magic number in a meta page, after the page header. */
const magicAt = 24

export const lmdbErrors = {
  notALog: (directory: string, why: string): TroupeError =>
    new TroupeError('bus.not_a_log', {
      boundary: 'bus',
      retriable: false,
      message: `${directory} does not contain a log of Troupe: ${why}`,
      hint: 'name the directory of a run, or an empty one for a new log',
    }),

  torn: (directory: string, cause?: unknown): TroupeError =>
    new TroupeError('bus.torn', {
      boundary: 'bus',
      retriable: false,
      message: `the log in ${directory} is damaged: it is shorter than its header says, or pages are inconsistent`,
      hint: 'copy the directory again, in full, while no run writes it',
      cause,
    }),

  locked: (directory: string, pid: number): TroupeError =>
    new TroupeError('bus.locked', {
      boundary: 'bus',
      retriable: true,
      message: `process ${pid} is writing the log in ${directory}, and a log can have only one writer`,
      hint: 'stop that process, or open the log for reading',
    }),

  fenced: (directory: string): TroupeError =>
    new TroupeError('bus.fenced', {
      boundary: 'bus',
      retriable: false,
      message: `another process has taken over the log in ${directory}; this append was not written`,
      hint: 'stop one of the two processes, then open the log again',
    }),

  readOnly: (directory: string): TroupeError =>
    new TroupeError('bus.read_only', {
      boundary: 'bus',
      retriable: false,
      message: `the log in ${directory} was opened for reading, so it cannot be written`,
    }),

  diskFull: (directory: string, cause: unknown): TroupeError =>
    new TroupeError('bus.disk_full', {
      boundary: 'bus',
      retriable: true,
      message: `the disk has no space left for the log in ${directory}; this append was not written, earlier ones were`,
      hint: 'free space and append again',
      cause,
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
      message: `the log in ${directory} could not be written; acknowledged appends are safe`,
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

export interface DataFile {
  readonly bytes: number
  /**
   * Size of the data file in bytes according to the newer meta page. The file may be shorter: lmdb leaves unused pages
   * at the end unwritten.
   */
  readonly wantedBytes: number
}

/**
 * Reads the two meta pages of the data file; undefined when there is no file, or an empty one.
 * @throws TroupeError bus.not_a_log when it is not a file of lmdb
 */
export function inspectDataFile(directory: string): DataFile | undefined {
  const path = join(directory, 'data.mdb')
  if (!existsSync(path)) return undefined
  const file = openSync(path, 'r')
  try {
    const head = Buffer.alloc(2 * 65_536)
    const read = readSync(file, head, 0, head.length, 0)
    if (read === 0) return undefined
    if (read < 8192 || head.readUInt32LE(magicAt) !== magic) {
      throw lmdbErrors.notALog(directory, 'data.mdb is not an lmdb file')
    }
    // Meta page: a page header, then magic, version, address, map size, two trees of 48 bytes (the first begins with
    // the page size), last page, transaction id.
    const pageBytes = head.readUInt32LE(magicAt + 24)
    let lastPage = 0n
    let newest = -1n
    for (const page of [0, pageBytes]) {
      if (page + magicAt + 136 > read || head.readUInt32LE(page + magicAt) !== magic) continue
      const transaction = head.readBigUInt64LE(page + magicAt + 128)
      if (transaction <= newest) continue
      newest = transaction
      lastPage = head.readBigUInt64LE(page + magicAt + 120)
    }
    return { bytes: fstatSync(file).size, wantedBytes: (Number(lastPage) + 1) * pageBytes }
  } finally {
    closeSync(file)
  }
}

const outOfSpace = new Set<unknown>(['ENOSPC', 'EDQUOT', 'EFBIG', 27 /* EFBIG */, 28 /* ENOSPC */, 122 /* EDQUOT */])
const probeBytes = 1024 * 1024

/**
 * Converts the error of a failed write. lmdb reports a write that was cut short by a full disk or a quota as EIO (5).
 */
export function writeError(directory: string, cause: unknown): TroupeError {
  const code = (cause as { code?: unknown } | undefined)?.code
  const full = outOfSpace.has(code) || (code === 5 && outOfSpace.has(probe(directory)))
  return full ? lmdbErrors.diskFull(directory, cause) : lmdbErrors.broken(directory, cause)
}

/** Tries to write 1 MiB in `directory`. Returns the code of the error if that fails, else undefined. */
function probe(directory: string): unknown {
  const path = join(directory, `.probe-${process.pid}`)
  try {
    writeFileSync(path, Buffer.alloc(probeBytes))
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code
  } finally {
    rmSync(path, { force: true })
  }
  return undefined
}
