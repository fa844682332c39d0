/**
 * Lists what can still be read in a damaged data file: each chunk and topic that a walk from the newer meta page
 * reaches. If that walk meets damage, a walk from the older meta page (the snapshot before) adds what only it reaches.
 *
 * in   a data file      out  topics, chunks by partition id in the order of their offsets, damage
 * Invariant: nothing is written and lmdb does not open the file. A chunk is not yet checked: `decodeChunk` does.
 */
import { dirname } from 'node:path'
import { checkDataFile } from '../dataFile'
import { lmdbErrors } from '../errors'
import { metaEntry } from '../metaValue'
import { offsetOf, partitionIdOf, recordKeyBytes } from '../recordKey'
import { treesOf } from './checkPages'
import { nodeValue } from './freePages'
import { DamagedPage, type Meta, PageFile } from './pageFile'
import { type LeafNode, type WalkOptions, walkTree } from './walkTree'

export interface FoundChunk {
  readonly key: Buffer
  readonly last: number
  /** True if the older snapshot has the chunk; the newer snapshot may have it too. */
  isOlder: boolean
  /** Reads the chunk. @throws DamagedPage */
  bytes(): Buffer
}

export interface FoundPages {
  /** Values under `topic:` keys that match their checksum. */
  readonly topics: readonly unknown[]
  readonly chunks: ReadonlyMap<number, readonly FoundChunk[]>
  readonly damage: readonly DamagedPage[]
  /** Returns true if chunks at the end of this partition may be missing although no gap shows it. */
  isSuspect(partitionId: number): boolean
  /**
   * True if the older snapshot was walked and all its chunks were found: then only chunks of the last transaction can
   * be missing.
   */
  readonly isOlderWhole: boolean
  /** False if a meta page is lost: what the other one names may lack the last transaction. */
  readonly hasBothMetas: boolean
  close(): void
}

/**
 * Reads a damaged file. Returns undefined when it is no file of lmdb, or both meta pages are lost. @throws TroupeError
 * bus.not_a_log when no regular file is there; bus.no_access
 */
export function salvagePages(path: string): FoundPages | undefined {
  if (!checkDataFile(dirname(path))) throw lmdbErrors.notALog(dirname(path), 'data.mdb is missing')
  const file = open(path)
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
  if (metas.length === 0) {
    file.close()
    return undefined
  }
  const topics = new Map<string, unknown>()
  const chunks = new Map<string, FoundChunk>()
  const suspect: Span[] = []
  let isOlderWhole = false
  let isWhole = false
  for (const meta of metas.sort((a, b) => b.transaction - a.transaction)) {
    const before = damage.length
    const isOlder = meta !== metas[0]
    const lost = collect(file, meta, { topics, chunks, damage, isOlder, withRecords: !isWhole })
    isWhole ||= lost.length === 0
    if (isOlder) isOlderWhole = isWhole
    else suspect.push(...lost)
    // The older snapshot is walked only if the newer one is damaged: it replaces what is lost there.
    if (damage.length === before) break
  }
  const byPartition = new Map<number, FoundChunk[]>()
  for (const chunk of [...chunks.values()].sort((a, b) => Buffer.compare(a.key, b.key))) {
    const id = partitionIdOf(chunk.key)
    const list = byPartition.get(id)
    if (list) list.push(chunk)
    else byPartition.set(id, [chunk])
  }
  const isSuspect = (id: number): boolean => suspect.some(({ from, before }) => id >= from && id < before)
  const close = (): void => file.close()
  const state = { isOlderWhole, hasBothMetas: metas.length === 2 }
  return { topics: [...topics.values()], chunks: byPartition, damage, isSuspect, ...state, close }
}

function open(path: string): PageFile | undefined {
  try {
    return PageFile.open(path)
  } catch (thrown) {
    if (thrown instanceof DamagedPage) return undefined
    throw thrown
  }
}

interface Found {
  readonly topics: Map<string, unknown>
  readonly chunks: Map<string, FoundChunk>
  readonly damage: DamagedPage[]
  readonly isOlder: boolean
  readonly withRecords: boolean
}

/** Range of partition ids, `before` exclusive. */
interface Span {
  readonly from: number
  readonly before: number
}

/** Collects what a snapshot still has. Returns the partitions whose last chunks, or all chunks, may be missing. */
function collect(file: PageFile, meta: Meta, found: Found): readonly Span[] {
  const { topics, chunks, damage, isOlder, withRecords } = found
  const lost: Span[] = []
  let last: number | undefined
  let isBroken = false
  const lastPage = Math.min(meta.lastPage, Math.ceil(file.bytes / file.pageBytes))
  const options: WalkOptions = {
    ...{ file, lastPage, transaction: meta.transaction, used: new Uint8Array(lastPage + 1) },
    damaged(fault) {
      damage.push(fault)
      isBroken = true
    },
  }
  const record = (node: LeafNode): void => {
    if (node.key.length !== recordKeyBytes) return
    const key = Buffer.from(node.key)
    const { overflow, bytes } = node
    const held = overflow === undefined ? nodeValue(file, node) : undefined
    const id = partitionIdOf(key)
    if (isBroken) lost.push({ from: last ?? 0, before: id })
    isBroken = false
    last = id
    const name = key.toString('hex')
    const known = chunks.get(name)
    if (known) known.isOlder ||= isOlder
    else chunks.set(name, { key, last: offsetOf(key), isOlder, bytes: () => held ?? file.value(overflow!, bytes) })
  }
  const value = (node: LeafNode): void => {
    const entry = metaEntry(node.key, nodeValue(file, node))
    if (entry === undefined) {
      const name = JSON.stringify(node.key.toString('utf8').replace(/\0+$/, ''))
      options.damaged(new DamagedPage(node.page, `troupe.meta: the value of ${name} does not match its checksum`))
    }
    if (entry?.key.startsWith('topic:') && !topics.has(entry.key)) topics.set(entry.key, entry.value)
  }
  const trees = treesOf(meta, options)
  const records = trees.get('troupe.records')
  const table = trees.get('troupe.meta')
  if (table) walkTree(table, 'troupe.meta', { ...options, node: value })
  if (!withRecords) return lost
  isBroken = records === undefined
  if (records) walkTree(records, 'troupe.records', { ...options, node: record })
  // Damage at the end hides every partition after the last chunk that was found.
  if (isBroken) lost.push({ from: last ?? 0, before: Number.POSITIVE_INFINITY })
  return lost
}
