/**
 * What is left in a damaged data file: every chunk and every topic that a walk over both meta pages still reaches.
 *
 * in   a data file      out  topics, chunks by partition id in the order of their offsets, damage
 * Invariant: nothing is written and lmdb does not open the file. A chunk is not yet checked: `decodeChunk` does.
 */
import { metaEntry } from '../metaValue'
import { offsetOf, partitionIdOf, recordKeyBytes } from '../recordKey'
import { treesOf } from './checkPages'
import { nodeValue } from './freePages'
import { DamagedPage, type Meta, PageFile } from './pageFile'
import { type LeafNode, type WalkOptions, walkTree } from './walkTree'

export interface FoundChunk {
  readonly key: Buffer
  readonly last: number
  /** Reads the chunk. @throws DamagedPage */
  bytes(): Buffer
}

export interface FoundPages {
  /** Values under `topic:` keys that match their checksum. */
  readonly topics: readonly unknown[]
  readonly chunks: ReadonlyMap<number, readonly FoundChunk[]>
  readonly damage: readonly DamagedPage[]
  /** Ids of partitions of which chunks may be missing although no gap shows it: the last ones before damage. */
  readonly suspect: ReadonlySet<number>
  close(): void
}

/** Reads a damaged file. Returns undefined when it is no file of lmdb, or both meta pages are lost. */
export function salvagePages(path: string): FoundPages | undefined {
  const file = PageFile.open(path)
  if (file === undefined) return undefined
  const damage: DamagedPage[] = []
  const metas = ([0, 1] as const).flatMap((page): Meta[] => {
    try {
      return [file.meta(page)]
    } catch (thrown) {
      if (!(thrown instanceof DamagedPage)) throw thrown
      damage.push(thrown)
      return []
    }
  })
  const topics = new Map<string, unknown>()
  const chunks = new Map<string, FoundChunk>()
  const suspect = new Set<number>()
  for (const meta of metas.sort((a, b) => b.transaction - a.transaction)) {
    const before = damage.length
    collect(file, meta, { topics, chunks, damage, suspect })
    // The older snapshot stands in for what the newer one has lost, and for nothing else.
    if (damage.length === before) break
  }
  const byPartition = new Map<number, FoundChunk[]>()
  for (const chunk of [...chunks.values()].sort((a, b) => Buffer.compare(a.key, b.key))) {
    const id = partitionIdOf(chunk.key)
    const list = byPartition.get(id)
    if (list) list.push(chunk)
    else byPartition.set(id, [chunk])
  }
  return { topics: [...topics.values()], chunks: byPartition, damage, suspect, close: () => file.close() }
}

interface Found {
  readonly topics: Map<string, unknown>
  readonly chunks: Map<string, FoundChunk>
  readonly damage: DamagedPage[]
  readonly suspect: Set<number>
}

function collect(file: PageFile, meta: Meta, { topics, chunks, damage, suspect }: Found): void {
  let last: number | undefined
  let isBroken = false
  const lastPage = Math.min(meta.lastPage, Math.ceil(file.bytes / file.pageBytes))
  const options: WalkOptions = {
    ...{ file, lastPage, transaction: meta.transaction, used: new Uint8Array(lastPage + 1) },
    damaged(fault) {
      damage.push(fault)
      isBroken = true
      if (last !== undefined) suspect.add(last)
    },
  }
  const record = (node: LeafNode): void => {
    if (node.key.length !== recordKeyBytes) return
    const key = Buffer.from(node.key)
    const { overflow, bytes } = node
    const held = overflow === undefined ? nodeValue(file, node) : undefined
    const id = partitionIdOf(key)
    if (isBroken) for (let at = last ?? id; at < id && at - (last ?? id) < 65_536; at++) suspect.add(at)
    isBroken = false
    last = id
    const name = key.toString('hex')
    if (!chunks.has(name))
      chunks.set(name, { key, last: offsetOf(key), bytes: () => held ?? file.value(overflow!, bytes) })
  }
  const value = (node: LeafNode): void => {
    const entry = metaEntry(node.key, nodeValue(file, node))
    if (entry?.key.startsWith('topic:') && !topics.has(entry.key)) topics.set(entry.key, entry.value)
  }
  const trees = treesOf(meta, options)
  const records = trees.get('troupe.records')
  const table = trees.get('troupe.meta')
  if (table) walkTree(table, 'troupe.meta', { ...options, node: value })
  isBroken = false
  if (records) walkTree(records, 'troupe.records', { ...options, node: record })
}
