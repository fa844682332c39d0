/**
 * Opens and checks a log directory in lmdb, and knows its layout: tables, keys, and how records are found.
 *
 * Two tables. `troupe.records`: (u32 partition id, u48 offset of the last record) big-endian → a chunk, so that the
 * first key at or after an offset is that of the chunk with this offset. `troupe.meta`: JSON under `format`, `writer`,
 * `topic:NAME`, `oldest:PARTITION-ID`, `committed:[group,topic,partition]`.
 * Invariant: lmdb runs with `overlappingSync: false`: a write promise resolves after fdatasync of the pages and an
 * O_DSYNC write of the meta page (checked with strace: one fdatasync a commit), so resolved means on disk.
 */
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Database, RootDatabase } from 'lmdb'
import { asError, TroupeError } from '../../errors'
import type { BusRecord, TopicConfig } from '../bus'
import { allocate, fillTo } from './allocate'
import { type Check, checkFile } from './checkFile'
import { decodeChunk } from './chunk'
import { type DataFile, inspectDataFile } from './dataFile'
import { lmdbErrors, requireLocalDisk, writeError } from './errors'
import { prepareDirectory } from './lockFile'
import { fromMeta } from './metaValue'
import { offsetOf, recordKey } from './recordKey'

export interface Store {
  readonly directory: string
  readonly root: RootDatabase<Buffer, string>
  readonly records: Database<Buffer, Buffer>
  /** The table `troupe.meta`. `metaValue` makes its values, `getMeta` reads them. */
  readonly meta: Database<unknown, string>
}

/** A topic as the log stores it. Its partition p has the id `id * 65536 + p`. */
export interface StoredTopic extends TopicConfig {
  readonly id: number
}

/**
 * Format of a new log. Since version 2, values of `troupe.meta` have a checksum, and the one of a chunk covers its key.
 */
const format = { name: 'troupe-log', version: 2 } as const
const tables = { records: 'troupe.records', meta: 'troupe.meta' } as const
const lastOffset = 2 ** 48 - 1
/**
 * Address space of a mapping, bytes. When a log outgrows its mapping, lmdb makes another of twice the size and keeps
 * the old ones, so that every page that is read through both counts twice in the process's resident memory.
 */
const mappedBytes = 2 ** 36
/** Bytes that opening a log writes at most: its tables, its format, the lease. */
const bytesToOpen = 256 * 1024

export const topicKey = (name: string): string => `topic:${name}`
export const oldestKey = (partitionId: number): string => `oldest:${partitionId}`
export const committedKey = (group: string, topic: string, partition: number): string =>
  `committed:${JSON.stringify([group, topic, partition])}`

export { offsetOf, recordKey }

/**
 * Opens the log's tables.
 * @param isWritten returns true if a living writer has the directory; then a data file that is shorter than its header
 * says is no damage
 * @param check which pages of the data file are checked before lmdb maps it
 */
export function openStore(
  directory: string,
  mode: 'write' | 'read',
  isWritten: () => boolean,
  check: Check = 'unless known',
): Store {
  if (mode === 'write') attempt(directory, () => mkdirSync(directory, { recursive: true }))
  const file = inspectDataFile(directory, mode)
  if (mode === 'read' && file === undefined) throw lmdbErrors.notALog(directory, 'data.mdb is missing or empty')
  requireLocalDisk(directory)
  const damage = file && checkFile(directory, mode, check)
  if (damage) throw lmdbErrors.damagedPage(directory, damage.page, damage.why)
  const short = file !== undefined && file.bytes < file.wantedBytes
  if (short) {
    // Either lmdb left unused pages at the end unwritten, or the file was cut off. A missing page of the mapping would
    // end the process with a signal; a page of zeros is an error that lmdb reports.
    if (mode === 'write') lengthen(directory, file)
    else if (!isWritten()) throw lmdbErrors.torn(directory, 'data.mdb is shorter than its header says')
  }
  const store = attempt(directory, () => {
    prepareDirectory(directory, mode, file === undefined)
    return openTables(directory, mode, file === undefined)
  })
  try {
    checkMeta(store)
    if (short && mode === 'write') checkAll(store)
    return store
  } catch (thrown) {
    void store.root.close()
    throw thrown
  }
}

/**
 * Fills a data file with zeros up to the size that its header names. @throws TroupeError bus.disk_full,
 * bus.file_too_large
 */
function lengthen(directory: string, { bytes, wantedBytes }: DataFile): void {
  const { end, cause } = attempt(directory, () => fillTo(join(directory, 'data.mdb'), bytes, wantedBytes))
  if (end < wantedBytes) throw lmdbErrors.short(directory, cause, wantedBytes - end)
}

function openTables(directory: string, mode: 'write' | 'read', fresh: boolean): Store {
  // lmdb is loaded at its first use, so that a memory bus works even if lmdb's native part does not.
  const lmdb = require('lmdb') as typeof import('lmdb')
  const root = lmdb.open<Buffer, string>({
    path: directory,
    noSubdir: false,
    encoding: 'binary',
    overlappingSync: false,
    // With batches by event turn, lmdb leaves a rejected promise unhandled when a commit fails.
    eventTurnBatching: false,
    readOnly: mode === 'read',
    ...(isAddressSpaceLimited() ? {} : { mapSize: mappedBytes }),
  })
  try {
    if (mode === 'write' && fresh) allocate(directory, root, bytesToOpen)
    const named = [...root.getKeys()]
    // A writer that ended while it created its log, out of space or killed, left no table, or only `troupe.records`.
    const isBegun = mode === 'write' && named.every(name => name === tables.records)
    if (!fresh && !named.includes(tables.meta) && !isBegun) {
      throw lmdbErrors.notALog(directory, 'data.mdb belongs to another program')
    }
    const options = { name: tables.records, encoding: 'binary', keyEncoding: 'binary' } as const
    const records = root.openDB<Buffer, Buffer>(options)
    const meta = root.openDB<unknown, string>({ name: tables.meta, encoding: 'json', useVersions: true })
    const found = meta.get('format') as { name: string; version: number } | undefined
    if (found?.name === format.name && found.version > format.version)
      throw lmdbErrors.newerFormat(directory, found.version, format.version)
    // Space is allocated only after the check of the version: not a byte of a log of a newer version is changed.
    if (mode === 'write') allocate(directory, root, bytesToOpen)
    if (mode === 'write' && (!found || (found.name === format.name && found.version < format.version))) {
      meta.putSync('format', format)
      syncDirectory(directory)
      syncDirectory(dirname(directory))
    } else if (found?.name !== format.name) {
      throw lmdbErrors.notALog(directory, `its format is ${JSON.stringify(found)}, expected ${JSON.stringify(format)}`)
    }
    return { directory, root, records, meta }
  } catch (thrown) {
    void root.close()
    throw thrown
  }
}

/**
 * True if the process's address space has a limit (`ulimit -v`), under which a mapping of `mappedBytes` would crash the
 * process.
 */
function isAddressSpaceLimited(): boolean {
  try {
    return !/^Max address space\s+unlimited/m.test(readFileSync('/proc/self/limits', 'utf8'))
  } catch {
    return false // without /proc no limit can be read, so none is assumed
  }
}

export function storedTopics(store: Store): StoredTopic[] {
  const topics: StoredTopic[] = []
  for (const { key, value } of store.meta.getRange({ start: 'topic:', end: 'topic;' })) {
    topics.push(fromMeta(store.directory, key, value) as StoredTopic)
  }
  return topics
}

/** Returns the value under a key of `troupe.meta`. @throws TroupeError bus.torn when it does not match its checksum */
export const getMeta = ({ meta, directory }: Store, key: string): unknown =>
  attempt(directory, () => fromMeta(directory, key, meta.get(key)))

/** Checks every value of `troupe.meta`: otherwise an entry with a damaged key would only seem to be missing. */
function checkMeta(store: Store): void {
  try {
    for (const { key, value } of store.meta.getRange()) fromMeta(store.directory, key, value)
  } catch (thrown) {
    throw thrown instanceof TroupeError
      ? thrown
      : lmdbErrors.torn(store.directory, `the table troupe.meta cannot be read: ${asError(thrown).message}`, thrown)
  }
}

/** Returns the oldest and the next offset of a partition in the current read transaction. */
export function boundsOf(store: Store, partitionId: number): { oldest: number; next: number } {
  const oldest = (getMeta(store, oldestKey(partitionId)) as number | undefined) ?? 0
  const start = recordKey(partitionId, lastOffset)
  for (const key of store.records.getKeys({ start, reverse: true, limit: 1 })) {
    if (key.readUInt32BE(0) === partitionId) return { oldest, next: offsetOf(key) + 1 }
  }
  return { oldest, next: oldest }
}

/** Returns the chunks of a partition, from the one with `offset` on; each is a copy. */
export function chunksFrom(
  store: Store,
  partitionId: number,
  offset: number,
): Iterable<{ key: Buffer; value: Buffer }> {
  return store.records.getRange({ start: recordKey(partitionId, offset), end: recordKey(partitionId + 1, 0) })
}

export function readRecords(
  store: Store,
  partitionId: number,
  topic: string,
  partition: number,
  offset: number,
  max: number,
  maxBytes: number,
): BusRecord[] {
  const records: BusRecord[] = []
  if (max <= 0) return records
  return attempt(store.directory, () => {
    let bytes = 0
    for (const { key, value } of chunksFrom(store, partitionId, offset)) {
      bytes += decodeChunk(value, topic, partition, key, offset, max - records.length, records)
      if (records.length >= max || bytes >= maxBytes) break
    }
    return records
  })
}

/**
 * Reads every chunk of records and checks its checksum. @throws TroupeError bus.torn when a chunk cannot be read or
 * does not match
 */
function checkAll(store: Store): void {
  try {
    for (const topic of storedTopics(store)) {
      for (let partition = 0; partition < topic.partitions; partition++) {
        for (const { key, value } of chunksFrom(store, topic.id * 65_536 + partition, 0)) {
          decodeChunk(value, topic.topic, partition, key, 0, 0, [])
        }
      }
    }
  } catch (thrown) {
    throw lmdbErrors.torn(store.directory, asError(thrown).message, thrown)
  }
}

function attempt<T>(directory: string, act: () => T): T {
  try {
    return act()
  } catch (thrown) {
    if (thrown instanceof TroupeError) throw thrown
    const code = (thrown as { code?: unknown }).code
    if (code === -30797 || code === -30796 || code === -30793)
      throw lmdbErrors.torn(directory, asError(thrown).message, thrown)
    throw writeError(directory, thrown)
  }
}

function syncDirectory(directory: string): void {
  const handle = openSync(directory, 'r')
  try {
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}
