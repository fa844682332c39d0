/**
 * Walks a tree of lmdb page by page and checks all that lmdb trusts: page numbers and kinds, bounds of nodes, order of
 * keys, depth, overflow pages, counts. Of a value on overflow pages it reads only the header of the first page.
 *
 * in   a tree's record, a file of pages      out  its leaf nodes in the order of their keys; damage
 * Invariant: no page is visited twice, so that a tree whose pages point at each other ends too.
 */
import { DamagedPage, flags, headerBytes, type PageFile, type Tree, u64 } from './pageFile'

const nodeBytes = 8
const maxDepth = 32
const maxKeyBytes = 4096

export const nodeFlags = { plain: 0, overflow: 1, subTree: 2 } as const

/**
 * A node of a leaf page. `data` is a view of the page, valid until the walk continues. For a value on overflow pages it
 * holds the number of the first page and the number of pages instead of the value.
 */
export interface LeafNode {
  readonly page: number
  readonly kind: number
  readonly key: Buffer
  readonly data: Buffer
  /** Bytes of the value, here or on overflow pages. */
  readonly bytes: number
  /** First overflow page; undefined when the value lies in the node. */
  readonly overflow: number | undefined
}

export interface WalkOptions {
  readonly file: PageFile
  /** Transaction number of the meta page. A page with a higher number is damaged. */
  readonly transaction: number
  readonly lastPage: number
  /**
   * Byte for each page of the file: the walk sets it to 1 when a tree names the page. The walks of all trees of one
   * file share it, so a page that two trees name is found.
   */
  readonly used: Uint8Array
  readonly compare?: (a: Buffer, b: Buffer) => number
  readonly node?: (node: LeafNode) => void
  /** True to leave leaf pages unread: only branch pages are walked, and `node` is not called. */
  readonly branchesOnly?: boolean
  /** Receives damage; the walk then leaves out that page and what is below it. */
  readonly damaged: (fault: DamagedPage) => void
}

/**
 * Walks the tree. `name`: the tree's name in the texts of damage. The counts of the tree's record are compared only if
 * the walk met no damage; with `branchesOnly`, only those of branch and leaf pages.
 */
export function walkTree(tree: Tree, name: string, options: WalkOptions): void {
  const { file, transaction, lastPage, used, node: take, damaged } = options
  const compare = options.compare ?? Buffer.compare
  const branchesOnly = options.branchesOnly === true
  const buffers: Buffer[] = []
  const counted = { branches: 0, leaves: 0, overflows: 0, entries: 0 }
  let faults = 0
  let last: Buffer | undefined

  const claim = (page: number, count = 1): void => {
    if (!Number.isSafeInteger(page) || page < 2 || count < 1 || page + count - 1 > lastPage) {
      throw new DamagedPage(
        page,
        `${name}: a node names the pages ${page} to ${page + count - 1}, expected 2 to ${lastPage}`,
      )
    }
    for (let at = page; at < page + count; at++) {
      if (used[at] !== 0) throw new DamagedPage(at, `${name}: two nodes name this page`)
      used[at] = 1
    }
  }
  const header = (bytes: Buffer, page: number): void => {
    const damage = (why: string) => new DamagedPage(page, `${name}: ${why}`)
    if (u64(bytes, 0) !== page) throw damage(`its header says page ${u64(bytes, 0)}`)
    if (u64(bytes, 8) > transaction)
      throw damage(`its transaction is ${u64(bytes, 8)}, but the log's newest is ${transaction}`)
  }
  const ordered = (key: Buffer, page: number): void => {
    if (last !== undefined && compare(last, key) >= 0) throw new DamagedPage(page, `${name}: its keys are not in order`)
    last = Buffer.from(key)
  }

  function visit(page: number, depth: number, separator: Buffer | undefined): void {
    claim(page)
    if (branchesOnly && depth === tree.depth) {
      counted.leaves++
      return
    }
    buffers[depth] ??= Buffer.allocUnsafeSlow(file.pageBytes)
    const bytes = file.read(page, buffers[depth]!)
    header(bytes, page)
    const kind = bytes.readUInt16LE(18)
    if (kind !== (depth === tree.depth ? flags.leaf : flags.branch)) {
      throw new DamagedPage(page, `${name}: its flags ${kind} are wrong for a page at depth ${depth} of ${tree.depth}`)
    }
    const nodes = nodesOf(bytes, page, name, kind === flags.leaf)
    if (kind === flags.leaf) counted.leaves++
    else counted.branches++
    for (let i = 0; i < nodes.length; i++) {
      const at = nodes[i]!
      const key = bytes.subarray(at + nodeBytes, at + nodeBytes + bytes.readUInt16LE(at + 6))
      if (kind === flags.leaf) {
        if (separator !== undefined && compare(separator, key) > 0) {
          throw new DamagedPage(page, `${name}: a key is lower than the one that its branch has`)
        }
        ordered(key, page)
        leaf(bytes, at, page, key)
        continue
      }
      // The first key of a branch stands for all keys that are lower, so lmdb does not read it.
      const low = i === 0 ? separator : Buffer.from(key)
      if (branchesOnly && i > 0) ordered(key, page)
      else if (i > 0 && last !== undefined && compare(last, key) >= 0) {
        throw new DamagedPage(page, `${name}: its keys are not in order`)
      }
      const child =
        bytes.readUInt16LE(at) + bytes.readUInt16LE(at + 2) * 0x1_0000 + bytes.readUInt16LE(at + 4) * 0x1_0000_0000
      below(child, depth + 1, low)
    }
  }

  function below(page: number, depth: number, low: Buffer | undefined): void {
    try {
      visit(page, depth, low)
    } catch (thrown) {
      if (!(thrown instanceof DamagedPage)) throw thrown
      faults++
      damaged(thrown)
    }
  }

  function leaf(bytes: Buffer, at: number, page: number, key: Buffer): void {
    const kind = bytes.readUInt16LE(at + 4)
    const size = bytes.readUInt16LE(at) + bytes.readUInt16LE(at + 2) * 0x1_0000
    const from = at + nodeBytes + key.length
    counted.entries++
    if (kind === nodeFlags.overflow) {
      const first = u64(bytes, from)
      const pages = u64(bytes, from + 16)
      if (pages !== Math.floor((headerBytes - 1 + size) / file.pageBytes) + 1) {
        throw new DamagedPage(
          page,
          `${name}: a value of ${size} bytes claims ${pages} overflow pages, which does not fit its size`,
        )
      }
      claim(first, pages)
      counted.overflows += pages
      const head = file.read(first, Buffer.allocUnsafe(headerBytes), headerBytes)
      header(head, first)
      if (head.readUInt16LE(18) !== flags.overflow || head.readUInt32LE(20) !== pages) {
        throw new DamagedPage(first, `${name}: expected the first of ${pages} overflow pages`)
      }
      file.requireBytes(first, pages)
      take?.({ page, kind, key, data: bytes.subarray(from, from + 24), bytes: size, overflow: first })
    } else {
      take?.({ page, kind, key, data: bytes.subarray(from, from + size), bytes: size, overflow: undefined })
    }
  }

  const { root, depth } = tree
  if (root === undefined) {
    if (depth !== 0 || tree.entries !== 0)
      damaged(new DamagedPage(0, `${name}: the tree has no root, but its record says ${tree.entries} entries`))
    return
  }
  if (depth < 1 || depth > maxDepth) {
    damaged(new DamagedPage(root, `${name}: its depth is ${depth}, expected 1 to ${maxDepth}`))
    return
  }
  below(root, 1, undefined)
  if (faults > 0) return
  for (const what of ['branches', 'leaves', 'overflows', 'entries'] as const) {
    if (counted[what] === tree[what] || (branchesOnly && (what === 'overflows' || what === 'entries'))) continue
    damaged(new DamagedPage(root, `${name}: it has ${counted[what]} ${what}, but its record says ${tree[what]}`))
    return
  }
}

/** Returns where the nodes of a page begin. @throws DamagedPage when a node exceeds the page, or bytes are left over */
function nodesOf(bytes: Buffer, page: number, name: string, isLeaf: boolean): readonly number[] {
  const damage = (why: string) => new DamagedPage(page, `${name}: ${why}`)
  const lower = bytes.readUInt16LE(20)
  const upper = bytes.readUInt16LE(22)
  const room = bytes.length - headerBytes
  if (lower % 2 !== 0 || lower === 0 || lower > upper || upper > room) {
    throw damage(`the bounds of its nodes, ${lower} and ${upper}, do not fit its ${room} bytes`)
  }
  const nodes: number[] = []
  let total = 0
  for (let slot = 0; slot < lower; slot += 2) {
    const offset = bytes.readUInt16LE(headerBytes + slot)
    const at = headerBytes + offset
    if (offset < upper || offset % 2 !== 0 || offset + nodeBytes > room)
      throw damage(`a node begins at byte ${at}, where none can begin`)
    const keyBytes = bytes.readUInt16LE(at + 6)
    let size = nodeBytes + keyBytes
    if (isLeaf) {
      const kind = bytes.readUInt16LE(at + 4)
      const dataBytes = bytes.readUInt16LE(at) + bytes.readUInt16LE(at + 2) * 0x1_0000
      if (kind > nodeFlags.subTree || keyBytes === 0)
        throw damage(`a node has the flags ${kind} and a key of ${keyBytes} bytes, which lmdb never writes`)
      if (kind === nodeFlags.subTree && dataBytes !== 48)
        throw damage(`a tree's record has ${dataBytes} bytes, expected 48`)
      size += kind === nodeFlags.overflow ? 24 : dataBytes
    }
    if (keyBytes > maxKeyBytes || offset + size > room)
      throw damage(`a node of ${size} bytes at byte ${at} exceeds the page, or its key is too long`)
    total += size + (size % 2)
    nodes.push(at)
  }
  // lmdb leaves no gaps between nodes, so nodes that do not fill their part of the page have wrong lengths or offsets.
  if (total !== room - upper) throw damage(`its nodes have ${total} bytes, expected ${room - upper}`)
  return nodes
}
