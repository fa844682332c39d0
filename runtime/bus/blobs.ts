/**
 * The blob store: bytes addressed by their digest. A value too large for a record is stored here, and the record holds
 * its digest.
 *
 * in   bytes      out  their sha256; later the same bytes
 * Invariants: bytes whose `put` resolved are on disk (in `memoryBlobs`: in memory); `get` returns bytes with the
 * requested digest, or throws.
 */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { access, mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isFileTooLarge, isOutOfSpace } from '../../sandbox/outOfSpace'
import { needText, sizeText } from '../disk/freeSpace'
import { systemEffects } from '../effects'
import { asError, TroupeError } from '../errors'

export interface BlobReference {
  /** sha256 of the bytes, 64 lower-case hex digits. */
  readonly sha256: string
  readonly bytes: number
}

export interface BlobStore {
  /** Directory of the files; absent in memory. */
  readonly directory?: string
  /** Stores bytes, once for each digest. @throws TroupeError blob.disk_full, blob.file_too_large, blob.write_failed */
  put(bytes: Uint8Array): Promise<BlobReference>
  /**
   * Returns a copy of the stored bytes, which the receiver owns. @throws TroupeError blob.missing; blob.corrupt when
   * the stored bytes have another digest; blob.digest_invalid when `sha256` is not 64 lower-case hex digits
   */
  get(sha256: string): Promise<Uint8Array>
  has(sha256: string): Promise<boolean>
}

export function memoryBlobs(): BlobStore {
  const blobs = new Map<string, Uint8Array>()
  return {
    async put(bytes) {
      const sha256 = digest(bytes)
      if (!blobs.has(sha256)) blobs.set(sha256, new Uint8Array(bytes))
      return { sha256, bytes: bytes.length }
    },
    async get(sha256) {
      const bytes = blobs.get(checked(sha256))
      if (!bytes) throw missing(sha256, 'a store in memory, which has only what its own process put into it')
      return new Uint8Array(bytes)
    },
    async has(sha256) {
      return blobs.has(checked(sha256))
    },
  }
}

/**
 * Opens a blob store in files `<first two digits of the digest>/<the other digits>`: each file is written under another
 * name, synced and renamed, so that every file with such a name is complete. In mode 'read' the directory need not
 * exist; the store is empty then.
 */
export async function openFileBlobs(directory: string, mode: 'write' | 'read' = 'write'): Promise<BlobStore> {
  if (mode === 'write') {
    await writing(directory, async () => {
      await mkdir(directory, { recursive: true })
      await access(directory, constants.W_OK)
    })
  }
  const pathOf = (sha256: string): string => join(directory, checked(sha256).slice(0, 2), sha256.slice(2))
  // Without O_NONBLOCK, a FIFO in place of a file would wait for a writer.
  const flag = constants.O_RDONLY | constants.O_NONBLOCK
  const has = async (sha256: string): Promise<boolean> =>
    await access(pathOf(sha256)).then(
      () => true,
      () => false,
    )
  return {
    directory,
    async put(bytes) {
      const sha256 = digest(bytes)
      if (!(await has(sha256))) await writing(directory, () => write(directory, pathOf(sha256), bytes), bytes.length)
      return { sha256, bytes: bytes.length }
    },
    async get(sha256) {
      const bytes = await readFile(pathOf(sha256), { flag }).catch(cause => {
        throw missing(sha256, directory, cause)
      })
      const found = digest(bytes)
      if (found !== sha256) throw corrupt(pathOf(sha256), found)
      return bytes
    },
    has,
  }
}

async function write(root: string, path: string, bytes: Uint8Array): Promise<void> {
  const folder = join(path, '..')
  await mkdir(folder, { recursive: true })
  const aside = join(root, `.${systemEffects.unique()}.part`)
  try {
    const file = await open(aside, 'wx')
    try {
      await file.writeFile(bytes)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(aside, path)
  } catch (thrown) {
    await rm(aside, { force: true })
    throw thrown
  }
  // Sync the directory entries too: of the file in its folder, and of the folder, which may be new.
  for (const directory of [folder, root]) {
    const handle = await open(directory, 'r')
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  }
}

const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

/** Checks a digest, since it becomes part of a path. */
function checked(sha256: string): string {
  if (/^[0-9a-f]{64}$/.test(sha256)) return sha256
  throw new TroupeError('blob.digest_invalid', {
    boundary: 'bus',
    retriable: false,
    message: `${JSON.stringify(sha256.slice(0, 80))} is not a blob's digest; expected sha256 in lower-case hex`,
  })
}

function missing(sha256: string, place: string, cause?: unknown): TroupeError {
  return new TroupeError('blob.missing', {
    boundary: 'bus',
    retriable: false,
    message: `the blob ${sha256} cannot be read from ${place}${cause === undefined ? '' : `: ${asError(cause).message}`}`,
    hint: 'copy the blob directory together with the log that refers to it; if the file is there, mend what the message names',
    cause,
  })
}

function corrupt(path: string, found: string): TroupeError {
  return new TroupeError('blob.corrupt', {
    boundary: 'bus',
    retriable: false,
    message: `the bytes of the blob ${path} have the digest ${found}, but its path (folder and file name) states another`,
    hint: 'the file was changed or truncated: restore it from a copy',
  })
}

async function writing(directory: string, act: () => Promise<void>, needBytes?: number): Promise<void> {
  try {
    await act()
  } catch (cause) {
    if (isFileTooLarge(cause)) throw tooLarge(directory, needBytes, cause)
    const full = isOutOfSpace(cause)
    throw new TroupeError(full ? 'blob.disk_full' : 'blob.write_failed', {
      boundary: 'bus',
      retriable: full,
      message: full
        ? `the disk has no space left for blobs in ${directory}, or a quota is used up: ${needText(directory, needBytes)}`
        : `blobs cannot be written in ${directory}: ${asError(cause).message}`,
      hint: full
        ? `free space on the file system of ${directory}, or raise the quota of this user, then try again`
        : 'remove the cause; the directory must be writable for this user',
      cause,
    })
  }
}

const tooLarge = (directory: string, needBytes: number | undefined, cause: unknown): TroupeError =>
  new TroupeError('blob.file_too_large', {
    boundary: 'bus',
    retriable: false,
    message: `a blob${needBytes === undefined ? '' : ` of ${sizeText(needBytes)}`} in ${directory} is larger than a file may be here`,
    hint: 'raise the limit on file sizes of this process (`ulimit -f unlimited`), or use a file system with larger files; then resume the run with --resume',
    cause,
  })
