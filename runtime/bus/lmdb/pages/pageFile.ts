/**
 * The pages of a data file of lmdb, read with pread and without lmdb, so that a damaged page is an error here and never
 * ends the process.
 *
 * in   a data file      out  its two meta pages, and pages by number
 * Layout (lmdb 3.5, data version 2), little-endian: a page begins with u64 number, u64 transaction, u16, u16 flags,
 * u16 lower, u16 upper.
 * Invariant: nothing is written; reading a page that lies beyond the end of the file, or that the disk cannot read
 * (EIO), throws a `DamagedPage`.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'

export const headerBytes = 24
export const flags = { branch: 1, leaf: 2, overflow: 4, meta: 8 } as const

/** First number in a meta page of lmdb, and in its lock file. */
export const magic = 0xbeefc0de
const dataVersion = 2
const largestPage = 65_536
/** Upper bound on plausible page counts: 2^40 pages are 4 PiB. */
const maxPages = 2 ** 40

/** A page that does not hold what lmdb would have written. */
export class DamagedPage extends Error {
  constructor(
    readonly page: number,
    readonly why: string,
  ) {
    super(`page ${page}: ${why}`)
  }
}

/** Root and counts of a tree, as its record in a meta page or in the main tree says. */
export interface Tree {
  readonly flags: number
  readonly depth: number
  readonly branches: number
  readonly leaves: number
  readonly overflows: number
  readonly entries: number
  /** Page of the root; undefined for an empty tree. */
  readonly root: number | undefined
}

export interface Meta {
  readonly page: 0 | 1
  readonly transaction: number
  readonly lastPage: number
  readonly free: Tree
  readonly main: Tree
}

/**
 * Reads an unsigned 64-bit number. Numbers beyond 2^53 become inexact; every later bound refuses numbers of that size.
 */
export const u64 = (bytes: Buffer, at: number): number =>
  bytes.readUInt32LE(at) + bytes.readUInt32LE(at + 4) * 0x1_0000_0000

/** Reads the 48 bytes of a tree's record. */
export function treeAt(bytes: Buffer, at: number): Tree {
  const isEmpty = bytes.readUInt32LE(at + 40) === 0xffff_ffff && bytes.readUInt32LE(at + 44) === 0xffff_ffff
  return {
    flags: bytes.readUInt16LE(at + 4),
    depth: bytes.readUInt16LE(at + 6),
    branches: u64(bytes, at + 8),
    leaves: u64(bytes, at + 16),
    overflows: u64(bytes, at + 24),
    entries: u64(bytes, at + 32),
    root: isEmpty ? undefined : u64(bytes, at + 40),
  }
}

/** Converts the error of a failed read of a page: EIO becomes a DamagedPage; any other error is returned as it is. */
const ofDisk = (thrown: unknown, page: number): unknown =>
  (thrown as NodeJS.ErrnoException).code === 'EIO' ? new DamagedPage(page, 'the disk cannot read it (EIO)') : thrown

export class PageFile {
  private constructor(
    private readonly handle: number,
    private size: number,
    readonly pageBytes: number,
  ) {}

  /**
   * Opens a data file. Returns undefined if neither meta page is one of lmdb: it is no file of lmdb then. @throws
   * DamagedPage when the disk cannot read the pages
   */
  static open(path: string): PageFile | undefined {
    const handle = openSync(path, 'r')
    const head = Buffer.alloc(2 * largestPage)
    let read: number
    try {
      read = readSync(handle, head, 0, head.length, 0)
    } catch (thrown) {
      closeSync(handle)
      throw ofDisk(thrown, 0)
    }
    for (let at = 0; at < read && at <= largestPage; at = at === 0 ? 512 : at * 2) {
      if (at + headerBytes + 136 > read || head.readUInt32LE(at + headerBytes) !== magic) continue
      // The first meta page names the page size. If it is damaged, the second one is looked for: its offset is the page
      // size.
      const pageBytes = at === 0 ? head.readUInt32LE(headerBytes + 24) : at
      if (pageBytes < 512 || pageBytes > largestPage || (pageBytes & (pageBytes - 1)) !== 0) continue
      return new PageFile(handle, fstatSync(handle).size, pageBytes)
    }
    closeSync(handle)
    return undefined
  }

  /** Size of the file in bytes, as it was after the latest read of a meta page. */
  get bytes(): number {
    return this.size
  }

  close(): void {
    closeSync(this.handle)
  }

  /**
   * Reads `length` bytes into `into`, from the beginning of a page on. @throws DamagedPage when the file ends before,
   * or the disk cannot read them
   */
  read(page: number, into: Buffer, length = this.pageBytes): Buffer {
    if (page * this.pageBytes + length > this.bytes) throw new DamagedPage(page, 'it lies beyond the end of the file')
    let read: number
    try {
      read = readSync(this.handle, into, 0, length, page * this.pageBytes)
    } catch (thrown) {
      throw ofDisk(thrown, page)
    }
    if (read < length) throw new DamagedPage(page, 'it lies beyond the end of the file')
    return into
  }

  /** Checks that the file contains `pages` pages from page number `page` on. @throws DamagedPage */
  requireBytes(page: number, pages: number): void {
    if ((page + pages) * this.pageBytes > this.bytes) throw new DamagedPage(page, 'it lies beyond the end of the file')
  }

  /** Reads a value of `bytes` bytes on overflow pages. @throws DamagedPage */
  value(page: number, bytes: number): Buffer {
    return this.read(page, Buffer.allocUnsafe(headerBytes + bytes), headerBytes + bytes).subarray(headerBytes)
  }

  /** Reads both meta pages, the newer one first. @throws DamagedPage if one is not as lmdb writes it */
  metas(): readonly [newer: Meta, older: Meta] {
    const first = this.meta(0)
    const second = this.meta(1)
    const [newer, older] = first.transaction > second.transaction ? [first, second] : [second, first]
    // lmdb writes transaction n to meta page n mod 2, so the numbers of the two differ by one; both are 0 in a fresh
    // file.
    if (newer.transaction - older.transaction > 1 || (newer.transaction > 0 && newer.transaction % 2 !== newer.page)) {
      throw new DamagedPage(
        newer.page,
        `the meta pages name the transactions ${first.transaction} and ${second.transaction}; expected neighbours`,
      )
    }
    return [newer, older]
  }

  /** Reads one meta page. @throws DamagedPage */
  meta(page: 0 | 1): Meta {
    const bytes = this.read(page, Buffer.alloc(this.pageBytes))
    // A commit extends the file before it writes its meta page, so the size is read after the page.
    this.size = fstatSync(this.handle).size
    const damaged = (why: string) => new DamagedPage(page, `meta page: ${why}`)
    if (u64(bytes, 0) !== page) throw damaged(`its header says page ${u64(bytes, 0)}`)
    if (bytes.readUInt16LE(18) !== flags.meta)
      throw damaged(`its flags are ${bytes.readUInt16LE(18)}, expected ${flags.meta}`)
    const at = headerBytes
    if (bytes.readUInt32LE(at) !== magic) throw damaged('its magic number is not that of lmdb')
    if (bytes.readUInt32LE(at + 4) !== dataVersion)
      throw damaged(`its version is ${bytes.readUInt32LE(at + 4)}, expected ${dataVersion}`)
    if (u64(bytes, at + 8) !== 0) throw damaged('it wants the map at a fixed address, which Troupe never sets')
    if (bytes.readUInt32LE(at + 24) !== this.pageBytes)
      throw damaged(`its pages have ${bytes.readUInt32LE(at + 24)} bytes, expected ${this.pageBytes}`)
    const lastPage = u64(bytes, at + 120)
    const mapBytes = u64(bytes, at + 16)
    if (lastPage < 1 || lastPage > maxPages) throw damaged(`its last page is ${lastPage}, expected 1 to ${maxPages}`)
    if (mapBytes % this.pageBytes !== 0 || mapBytes < (lastPage + 1) * this.pageBytes || mapBytes > 2 ** 46) {
      throw damaged(`its map has ${mapBytes} bytes, which does not fit a last page of ${lastPage}`)
    }
    const free = treeAt(bytes, at + 24)
    const main = treeAt(bytes, at + 72)
    return { page, transaction: u64(bytes, at + 128), lastPage, free, main }
  }
}
