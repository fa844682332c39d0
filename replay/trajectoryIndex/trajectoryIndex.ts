/**
 * The index of a run's trajectories. The index of a run with 10,000 records or more is cached between commands, so that
 * `ls` of a large run and `show` of one trajectory need not scan the log.
 *
 * in   a recorded run        out  its rows; in the user's cache, the file that the next command starts from
 * The file is a projection. It is kept in the cache and not with the run, because replay writes nothing to a run's
 * directory: that may be an archive, read-only, or somebody else's; and a log on Kafka has no directory. It is never
 * trusted blindly: the first and last record of each partition must be unchanged, unreadable records must still be
 * unreadable, and newer records are added. A file that does not fit is dropped and rebuilt.
 * Invariant: for a log that was only appended to, a cached index that was extended has the same rows as one built from
 * the whole log, perhaps in another order.
 */
import { createHash } from 'node:crypto'
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { shapes } from '../../messages/shapes'
import { topicOnBus } from '../../messages/topics'
import type { BusRecord } from '../../runtime/bus/bus'
import { parseKafkaAddress } from '../../runtime/bus/kafka/address'
import { pathKind, unreadable } from '../../runtime/disk/pathKind'
import { troupeHome } from '../../runtime/home'
import type { Fault } from '../log/faults'
import { placeText } from '../log/place'
import type { RecordedRun } from '../log/recordedRun'
import { indexAsOf } from './indexAsOf'
import { type IndexedPartition, type IndexView, readIndex, writeIndex } from './indexFile'
import { IndexRows } from './rows'

/** Number of records from which an index is cached: a smaller log is scanned in less than a tenth of a second. */
const keptFrom = 10_000
/** Share of all records that must be new before the cached file is written again. */
const rewrittenFrom = 0.05
const maxFiles = 64
/**
 * Upper bound on the unreadable records that an index names. An index with more of them is not cached: the next command
 * would need longer to read each of them again than to scan the log.
 */
const maxFaults = 256

const made = new WeakMap<RecordedRun, Promise<IndexView>>()

/** Returns the index of a run; with `--at`, the index as of that position. */
export function indexOf(recorded: RecordedRun): Promise<IndexView> {
  let index = made.get(recorded)
  if (index === undefined) {
    const { whole } = recorded
    index = whole === recorded ? openIndex(recorded) : indexOf(whole).then(today => indexAsOf(recorded, today))
    made.set(recorded, index)
  }
  return index
}

/** Makes `view` the index that `indexOf` returns for this run from now on. */
export function replaceIndex(recorded: RecordedRun, view: IndexView): void {
  made.set(recorded, Promise.resolve(view))
}

async function openIndex(recorded: RecordedRun): Promise<IndexView> {
  const source = sourceOf(recorded)
  const name = createHash('sha256').update(source).digest('hex').slice(0, 32)
  const path = join(indexDirectory(), `${name}.index`)
  const ends = await endsOf(recorded)
  const records = ends.reduce((sum, { oldest, next }) => sum + next - oldest, 0)
  const kept = recorded.reindex ? { why: '--reindex' } : await keptAt(path, recorded, source, ends)
  const view = 'view' in kept ? kept.view : undefined
  if (kept.why !== undefined) drop(path)
  if (view !== undefined) for (const fault of view.head.faults) recorded.note(fault)
  const known = view?.head.partitions.reduce((sum, { oldest, next }) => sum + next - oldest, 0) ?? 0
  if (view !== undefined && known === records) return view

  const began = performance.now()
  const rows = view?.rows() ?? new IndexRows()
  const faults = await foldNewRecords(recorded, rows)
  const partitions = await Promise.all(
    ends.map(async ({ oldest }, p): Promise<IndexedPartition> => {
      const { next, claims, epoch, curriculum } = rows.partition(p)
      const [first, last] = [await fingerprint(recorded, p, oldest), await fingerprint(recorded, p, next - 1)]
      return { oldest, next, claims, epoch, curriculum, first, last }
    }),
  )
  const bytes = writeIndex(rows, { source, schema, partitions, faults })
  const isWorth = view === undefined ? records >= keptFrom : records - known >= rewrittenFrom * records
  const isKept = isWorth && faults.length <= maxFaults && keep(path, bytes)
  if (isKept && view === undefined) {
    const seconds = ((performance.now() - began) / 1000).toFixed(1)
    const why = kept.why === undefined ? 'index made' : `index rebuilt (${kept.why})`
    recorded.notice(`${why}: ${rows.rows.size} trajectories, ${records} records, ${seconds} s`)
  }
  return readIndex(bytes)!
}

/** Adds the log's records that `rows` lacks to `rows`; returns all unreadable records of the topic `trajectories`. */
export async function foldNewRecords(recorded: RecordedRun, rows: IndexRows): Promise<readonly Fault[]> {
  const from = Array.from({ length: recorded.partitionsOf('trajectories') }, (_, p) => rows.partition(p).next)
  const ends = await recorded.scan(
    'trajectories',
    entry => rows.take(entry),
    (_, record) => rows.place(record),
    from,
  )
  for (const { partition, offset } of ends) rows.partition(partition).next = offset
  return recorded.faults.filter(f => f.topic === 'trajectories')
}

type Ends = readonly { readonly oldest: number; readonly next: number }[]

async function endsOf(recorded: RecordedRun): Promise<Ends> {
  const topic = topicOnBus(recorded.run, 'trajectories')
  const partitions = Array.from({ length: recorded.partitionsOf('trajectories') }, (_, p) => p)
  return Promise.all(partitions.map(p => recorded.bus.offsets(topic, p)))
}

/** Returns the cached index, or the reason why it cannot be used; neither when no file exists. */
async function keptAt(
  path: string,
  recorded: RecordedRun,
  source: string,
  ends: Ends,
): Promise<{ readonly view: IndexView; readonly why?: undefined } | { readonly why?: string }> {
  if (pathKind(path).kind === 'nothing') return {}
  let bytes: Buffer
  try {
    if (unreadable(path, 'file') !== undefined) return { why: 'the index file could not be read' }
    bytes = readFileSync(path)
  } catch {
    return { why: 'the index file could not be read' }
  }
  const view = readIndex(bytes)
  if (view === undefined) return { why: 'the index file was torn, or of another version' }
  const { head } = view
  if (head.source !== source) return { why: 'the index file was of another log' }
  if (head.schema !== schema) return { why: 'the schema of facts has changed since the index was made' }
  if (head.partitions.length !== ends.length) return { why: 'the number of partitions has changed' }
  for (const [p, { oldest, next, first, last }] of head.partitions.entries()) {
    const now = ends[p]!
    if (now.next < next) return { why: `partition ${p} now ends before offset ${next}` }
    if (now.oldest !== oldest) return { why: `partition ${p} now begins at another offset` }
    const [begins, ended] = [await fingerprint(recorded, p, oldest), await fingerprint(recorded, p, next - 1)]
    if (begins !== first || ended !== last) return { why: `the records of partition ${p} have changed` }
  }
  const changed = await changedFault(recorded, head.faults)
  return changed === undefined ? { view } : { why: `the fault at ${placeText(changed)} has changed` }
}

/** Fingerprint that tells whether a record is unchanged: its timestamp and a crc32; null when it cannot be read. */
async function fingerprint(recorded: RecordedRun, partition: number, offset: number): Promise<string | null> {
  if (offset < 0) return null
  const topic = topicOnBus(recorded.run, 'trajectories')
  const [record] = await recorded.bus.read(topic, partition, offset, 1).catch((): readonly BusRecord[] => [])
  if (record?.offset !== offset) return null
  return `${record.timestamp} ${crc32(record.value, crc32(JSON.stringify([record.key, record.headers])))}`
}

/**
 * Returns the first fault that has changed or gone, such as a blob that came back; undefined when all are as before.
 */
async function changedFault(recorded: RecordedRun, faults: readonly Fault[]): Promise<Fault | undefined> {
  const text = (fault: Fault) => JSON.stringify([placeText(fault), fault.kind, fault.message])
  for (const fault of faults) {
    let reads = false
    await recorded.pick('trajectories', [fault], () => {
      reads = true
    })
    if (reads || !recorded.faults.some(f => text(f) === text(fault))) return fault
  }
  return undefined
}

/** Writes the file atomically. Returns false when the cache cannot be written; the command then works without it. */
function keep(path: string, bytes: Buffer): boolean {
  const beside = `${path}.${process.pid}`
  try {
    mkdirSync(indexDirectory(), { recursive: true })
    writeFileSync(beside, bytes)
    renameSync(beside, path)
    prune()
    return true
  } catch {
    rmSync(beside, { force: true })
    return false
  }
}

/** Removes a cached index. If that fails, the file stays, and no error is thrown. */
function drop(path: string): void {
  try {
    rmSync(path, { force: true, recursive: true })
  } catch {}
}

/** Deletes the oldest cached indexes beyond `maxFiles`. */
function prune(): void {
  const directory = indexDirectory()
  const files = readdirSync(directory).map(name => join(directory, name))
  const aged = files.map(file => ({ file, at: statSync(file).mtimeMs })).sort((a, b) => b.at - a.at)
  for (const { file } of aged.slice(maxFiles)) rmSync(file, { force: true })
}

const indexDirectory = (): string => join(troupeHome(), 'replay')

/** Names the log, without secrets that its address may contain. */
function sourceOf({ address, run, files }: RecordedRun): string {
  if (!address.startsWith('kafka:')) return `lmdb:${realpathSync(files.log)}`
  const { brokers, settings } = parseKafkaAddress(address)
  return `kafka:${[...brokers].sort().join()} ${settings.prefix}${run}`
}

const schema = createHash('sha256')
  .update(JSON.stringify(Object.entries(shapes).map(([type, { version }]) => [type, version])))
  .digest('hex')
  .slice(0, 16)
