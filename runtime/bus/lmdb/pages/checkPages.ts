/**
 * Checks the pages of a log's data file before lmdb maps it: on a damaged page lmdb would end the process by a signal.
 *
 * in   a data file      out  nothing, or the first damage
 * Invariants: a file that passes a whole check holds two sound meta pages, and trees whose pages, nodes, keys, counts
 * and free pages agree, so lmdb finds every record that was committed (if a writer disturbs all walks, nothing is
 * proved: see `findDamage`). The values of records are not read: each chunk has a checksum, which is compared whenever
 * it is read.
 */

import { nodeValue, walkFreePages } from './freePages'
import { DamagedPage, type Meta, PageFile, type Tree, treeAt } from './pageFile'
import { type LeafNode, nodeFlags, type WalkOptions, walkTree } from './walkTree'

export interface CheckOptions {
  /** True to leave out the free pages and the leaf pages of records, nearly all pages of a long log. */
  readonly branchesOnly?: boolean
  /** Called with each leaf node of the table `troupe.meta` and its value; a walk that begins anew calls it again. */
  readonly entry?: (node: LeafNode, value: Buffer) => void
}

/** Upper bound on the walks of one check: a walk begins anew when a writer committed meanwhile. */
const attempts = 5

/**
 * Returns the first damage of the file; undefined when it is sound. While a writer commits, pages change under the
 * walk, which then begins anew; if all 5 walks are disturbed, the file counts as sound, since a writer could open it.
 */
export function findDamage(path: string, options: CheckOptions = {}): DamagedPage | undefined {
  let found: DamagedPage | undefined
  for (let attempt = 0; attempt < attempts; attempt++) {
    let before: number | undefined
    let file: PageFile | undefined
    try {
      file = PageFile.open(path)
      if (file === undefined) return new DamagedPage(0, 'neither meta page is one of lmdb')
      const [meta] = file.metas()
      before = meta.transaction
      check(file, meta, options)
      return undefined
    } catch (thrown) {
      if (!(thrown instanceof DamagedPage)) throw thrown
      found = thrown
    } finally {
      file?.close()
    }
    if (before === newest(path)) return found
  }
  return newest(path) === undefined ? found : undefined
}

/** Number of the newest transaction; undefined while the meta pages are damaged. */
function newest(path: string): number | undefined {
  let file: PageFile | undefined
  try {
    file = PageFile.open(path)
    return file?.metas()[0].transaction
  } catch (thrown) {
    if (thrown instanceof DamagedPage) return undefined
    throw thrown
  } finally {
    file?.close()
  }
}

function check(file: PageFile, meta: Meta, { branchesOnly = false, entry }: CheckOptions): void {
  const { lastPage } = meta
  // A damaged meta page may name up to 2^40 pages, and `used` has a byte for each: a last page more than 4 GiB beyond
  // the end of the file is refused.
  if (lastPage * file.pageBytes > file.bytes + 2 ** 32) {
    throw new DamagedPage(
      meta.page,
      `meta page: its last page is ${lastPage}, but the file has only ${file.bytes} bytes`,
    )
  }
  const options: WalkOptions = {
    ...{ file, lastPage, transaction: meta.transaction, used: new Uint8Array(lastPage + 1) },
    damaged(fault) {
      throw fault
    },
  }
  if ((meta.free.flags & 0x7f) !== 8)
    throw new DamagedPage(meta.page, `meta page: the tree of free pages has the flags ${meta.free.flags}, expected 8`)
  for (const [name, tree] of treesOf(meta, options)) {
    if (name === 'troupe.meta') {
      walkTree(tree, name, entry ? { ...options, node: node => entry(node, nodeValue(file, node)) } : options)
    } else walkTree(tree, name, { ...options, branchesOnly })
  }
  if (!branchesOnly) walkFreePages(meta, options)
}

/** Walks the main tree. Returns the roots of the trees (lmdb's tables) that it names. */
export function treesOf(meta: Meta, options: WalkOptions): ReadonlyMap<string, Tree> {
  const trees = new Map<string, Tree>()
  const take = ({ kind, key, data, page }: LeafNode): void => {
    const name = key.toString('latin1').replace(/\0+$/, '')
    if (kind !== nodeFlags.subTree) return
    const tree = treeAt(data, 0)
    if ((tree.flags & 0x7f) !== 0)
      throw new DamagedPage(page, `trees: ${JSON.stringify(name)} has the flags ${tree.flags}, expected 0`)
    trees.set(name, tree)
  }
  if ((meta.main.flags & 0x7f) !== 0)
    options.damaged(new DamagedPage(meta.page, `meta page: the main tree has the flags ${meta.main.flags}, expected 0`))
  walkTree(meta.main, 'trees', { ...options, node: take })
  return trees
}
