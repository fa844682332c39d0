/**
 * The free pages of a data file, as lmdb's free tree lists them. A writer takes pages from this list and overwrites
 * them, so a page on it that is in use would destroy records later.
 *
 * in   the free tree of a meta page      out  a 2 in `options.used` for each free page; damage
 * A list is i64 count, then entries: 0 is empty, n > 0 is page n, -n is followed by the first of n pages.
 */
import { DamagedPage, type Meta, type PageFile, u64 } from './pageFile'
import { type LeafNode, type WalkOptions, walkTree } from './walkTree'

const byNumber = (a: Buffer, b: Buffer): number => u64(a, 0) - u64(b, 0)

export function walkFreePages(meta: Meta, options: WalkOptions): void {
  const { file, lastPage, used, damaged } = options
  const lists: { readonly page: number; readonly list: Buffer }[] = []
  const take = (node: LeafNode): void => {
    if (node.key.length !== 8)
      throw new DamagedPage(node.page, `free pages: a key has ${node.key.length} bytes, expected 8`)
    if (u64(node.key, 0) > meta.transaction) {
      throw new DamagedPage(
        node.page,
        `free pages: a key names transaction ${u64(node.key, 0)}, but the log's newest is ${meta.transaction}`,
      )
    }
    lists.push({ page: node.page, list: nodeValue(file, node) })
  }
  walkTree(meta.free, 'free pages', { ...options, compare: byNumber, node: take })
  for (const { page, list } of lists) {
    const mark = (first: number, count: number): void => {
      if (first < 2 || first + count - 1 > lastPage)
        throw new DamagedPage(
          page,
          `free pages: a list names the pages ${first} to ${first + count - 1}, expected pages from 2 to ${lastPage}`,
        )
      for (let at = first; at < first + count; at++) {
        if (used[at] !== 0)
          throw new DamagedPage(at, 'free pages: the page is listed as free, but is in use or listed twice')
        used[at] = 2
      }
    }
    try {
      markAll(page, list, mark)
    } catch (thrown) {
      if (!(thrown instanceof DamagedPage)) throw thrown
      damaged(thrown)
    }
  }
}

function markAll(page: number, list: Buffer, mark: (first: number, count: number) => void): void {
  const bad = (why: string) => new DamagedPage(page, `free pages: ${why}`)
  if (list.length < 8 || list.length % 8 !== 0) throw bad(`a list has ${list.length} bytes, expected a multiple of 8`)
  const count = Number(list.readBigInt64LE(0))
  if (count < 0 || 8 * (count + 1) > list.length)
    throw bad(`a list of ${list.length} bytes claims to have ${count} entries, expected 0 to ${list.length / 8 - 1}`)
  for (let i = 1; i <= count; i++) {
    const entry = Number(list.readBigInt64LE(8 * i))
    if (entry > 0) mark(entry, 1)
    else if (entry < 0) {
      if (++i > count) throw bad('a list ends in the middle of a range of pages')
      mark(Number(list.readBigInt64LE(8 * i)), -entry)
    }
  }
}

/** Reads the value of a node, from its overflow pages too. The result belongs to the caller. */
export function nodeValue(file: PageFile, { data, bytes, overflow }: LeafNode): Buffer {
  if (overflow === undefined) return Buffer.from(data)
  return file.value(overflow, bytes)
}
