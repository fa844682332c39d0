/**
 * Saves what was written before the damage of a log, as a run of the same name in another directory.
 *
 * in   a damaged run on lmdb
 * out  a new run that can be read, verified and resumed, with a copy of the run's other files (weights, checkpoints,
 *      blobs); what was lost
 * Invariants: the damaged run is only read. All fact partitions are cut at one time, the earliest up to which the facts
 * of a damaged partition are known to be whole, so that no fact is saved without those that it follows from. Statuses
 * and dead letters are saved up to that time, as far as they can be read. Commands follow from facts and are left out.
 */
import { join, resolve } from 'node:path'
import { decode } from '../../messages/codec'
import { MessageError } from '../../messages/messageError'
import { topics as specs, type TopicName, topicOnBus } from '../../messages/topics'
import type { BusRecord } from '../../runtime/bus/bus'
import { decodeChunk } from '../../runtime/bus/lmdb/chunk'
import { DamagedPage } from '../../runtime/bus/lmdb/pages/pageFile'
import { type FoundChunk, type FoundPages, salvagePages } from '../../runtime/bus/lmdb/pages/salvagePages'
import type { StoredTopic } from '../../runtime/bus/lmdb/store'
import { TroupeError } from '../../runtime/errors'
import { directoryOf, noRun, runNamed } from '../../runtime/openRun'
import { runDirectory, runsOf } from '../../runtime/runDirectory'
import { copyEntries, withNewRun } from './newRunFiles'

export interface SalvageOptions {
  readonly bus: string
  readonly run: string
  /** Address of the new run, lmdb:DIR. Default: the directory `salvaged` in the directory of `bus`. */
  readonly to?: string
}

/** Offsets of a partition that the new run lacks, although the damaged one had them. */
export interface LostOffsets {
  readonly topic: string
  readonly partition: number
  readonly from: number
  /** Last lost offset; null when the damage hides how many records followed `from`. */
  readonly through: number | null
}

export interface Salvaged {
  readonly run: string
  readonly to: string
  readonly records: number
  /** Time up to which facts were saved, ms since 1970; null when no fact can be lost. */
  readonly until: number | null
  readonly damage: readonly string[]
  readonly lost: readonly LostOffsets[]
  /** Trajectories with records that could still be read but are not in the new run. */
  readonly trajectories: readonly string[]
  /** Steps whose `step.completed` could still be read but is not in the new run. */
  readonly steps: readonly number[]
}

interface Part {
  readonly topic: StoredTopic
  readonly name: TopicName
  readonly partition: number
  readonly chunks: readonly FoundChunk[]
  readonly isSuspect: boolean
}

/** Fields of a partition that decoding its chunks needs. */
interface Decoded {
  readonly topic: Pick<StoredTopic, 'topic'>
  readonly partition: number
}

const notCopied = new Set(['log', 'index'])

/**
 * @throws TroupeError replay.salvage_impossible, replay.copy_failed, run.not_found, run.exists, run.bad_name,
 * bus.not_a_log, bus.no_access; after an error, nothing of the new run is left
 */
export async function salvageRun({ bus, run: name, to }: SalvageOptions): Promise<Salvaged> {
  const run = runNamed(name)
  const directory = directoryOf(bus)
  if (!bus.startsWith('lmdb:')) throw impossible(name, `${bus} is not an lmdb log`, 'give --bus lmdb:DIR')
  if (!runsOf(directory).includes(name)) throw noRun(directory, name)
  const target = to ?? `lmdb:${join(resolve(directory), 'salvaged')}`
  if (!target.startsWith('lmdb:')) throw impossible(name, `${target} is not an lmdb log`, 'give --to lmdb:DIR')
  const files = runDirectory(directory, run)
  const found = salvagePages(join(files.log, 'data.mdb'))
  if (found === undefined)
    throw impossible(
      name,
      'its data.mdb is no file of lmdb, or both meta pages are lost',
      'restore the log from a copy',
    )
  try {
    const topics = found.topics as readonly StoredTopic[]
    const strays = straysOf(topics, found)
    const parts = partsOf(topics, found, id => found.isSuspect(id) || strays.mayHide(id), name)
    const facts = parts.filter(({ name }) => specs[name].holds === 'facts')
    const nameless = Object.values(specs).find(s => s.holds === 'facts' && !facts.some(part => part.name === s.name))
    if (nameless && (strays.faults.length > 0 || found.damage.length > 0)) {
      throw impossible(name, `the entry of its topic '${nameless.name}' is lost`, 'restore the log from a copy')
    }
    const ends = new Map(facts.map(part => [part, intactEnd(part)]))
    let until = Number.POSITIVE_INFINITY
    for (const [part, { isCut, lastAt }] of ends) {
      if (!isCut && !part.isSuspect) continue
      // If the older of lmdb's two snapshots (one for each of the last two transactions) is whole, it shows every
      // partition, also an empty one, as it was at the time of that snapshot's last fact.
      const known = !isCut && found.isOlderWhole && !strays.mayHide(idOf(part)) ? olderAt(facts) : lastAt
      if (known === undefined) {
        const why = `all facts of ${part.name}:${part.partition} may be lost`
        throw impossible(name, why, 'restore the log from a copy')
      }
      until = Math.min(until, known)
    }
    const started = facts.find(part => part.name === 'runs')
    if (started === undefined || !(until >= (firstAt(started) ?? Number.POSITIVE_INFINITY))) {
      throw impossible(name, 'its first facts or the list of its topics are lost', 'restore the log from a copy')
    }

    const lost: LostOffsets[] = []
    const trajectories = new Set<string>()
    const steps = new Set<number>()
    let records = 0
    await withNewRun(target, run, async context => {
      try {
        await context.bus.createTopics(topics.map(pick))
        for (const part of parts) {
          if (specs[part.name].holds === 'commands') continue
          const end = ends.get(part)?.end ?? Number.POSITIVE_INFINITY
          let next = 0
          let through: number | null = null
          for (const chunk of part.chunks) {
            const decoded = recordsOf(part, chunk)
            through = chunk.last
            const kept = decoded.filter(r => r.offset < end && r.timestamp <= until)
            for (const record of decoded) {
              const { offset, timestamp, headers } = record
              if (offset < end && timestamp <= until) continue
              if (headers.trajectory) trajectories.add(headers.trajectory)
              const step = completedStep(record)
              if (step !== undefined) steps.add(step)
            }
            if (kept.length === 0) continue
            await context.bus.append(
              kept.map(({ topic, key, headers, value, partition }) => ({ topic, key, headers, value, partition })),
            )
            records += kept.length
            next = kept[kept.length - 1]!.offset + 1
          }
          const hidden = part.isSuspect && (through === null || through < next)
          if (hidden || (through !== null && through >= next)) {
            lost.push({ topic: part.name, partition: part.partition, from: next, through: hidden ? null : through })
          }
        }
      } finally {
        await context.bus.close()
      }
      await copyEntries(files.root, context.files.root, notCopied)
    })
    // If only one meta page is left, its snapshot is whole, but a later transaction may be lost with the other page.
    const lastAt = Math.max(...[...ends.values()].map(end => end.lastAt ?? Number.NEGATIVE_INFINITY))
    const saidUntil = until === Number.POSITIVE_INFINITY ? (found.hasBothMetas ? null : lastAt) : until
    return {
      ...{ run: name, to: target, records, until: saidUntil },
      damage: [...new Set([...found.damage.map(({ message }) => message), ...strays.faults])],
      ...{ lost, trajectories: [...trajectories].sort(), steps: [...steps] },
    }
  } finally {
    found.close()
  }
}

const pick = ({ topic, partitions, retentionMs }: StoredTopic) => ({ topic, partitions, retentionMs })

function partsOf(
  topics: readonly StoredTopic[],
  { chunks }: FoundPages,
  isSuspect: (partitionId: number) => boolean,
  run: string,
): readonly Part[] {
  return topics.flatMap(topic => {
    const name = Object.values(specs).find(spec => topicOnBus(runNamed(run), spec.name) === topic.topic)?.name
    if (name === undefined) return []
    return Array.from({ length: topic.partitions }, (_, partition): Part => {
      const id = topic.id * 65_536 + partition
      return { topic, name, partition, chunks: chunks.get(id) ?? [], isSuspect: isSuspect(id) }
    })
  })
}

const idOf = ({ topic, partition }: Part): number => topic.id * 65_536 + partition

/**
 * Finds chunks whose topic is unknown. If such a chunk is damaged, its key may be wrong too. Chunks are stored in the
 * order of their keys, so the chunk may belong to any partition from the last one of a known topic before it up to the
 * partition in its key. `mayHide` returns true for these partitions.
 */
function straysOf(topics: readonly StoredTopic[], { chunks }: FoundPages) {
  const ids = new Set(topics.map(topic => topic.id))
  const faults: string[] = []
  const spans: { readonly from: number; readonly to: number }[] = []
  let from = 0
  for (const [id, list] of chunks) {
    const topic = Math.floor(id / 65_536)
    if (ids.has(topic)) {
      from = id
      continue
    }
    faults.push(`topic ${topic}: its entry is lost, and with it ${list.length} chunks of partition ${id % 65_536}`)
    const unknown = { topic: { topic: '' }, partition: id % 65_536 }
    if (list.some(chunk => recordsOf(unknown, chunk).length === 0)) spans.push({ from, to: id })
  }
  return { faults, mayHide: (id: number): boolean => spans.some(span => id >= span.from && id <= span.to) }
}

/** Time of the last fact that the older of lmdb's two snapshots has too; undefined if it has none. */
function olderAt(facts: readonly Part[]): number | undefined {
  const times = facts.flatMap(part => {
    const last = part.chunks.filter(chunk => chunk.isOlder).at(-1)
    return last === undefined ? [] : recordsOf(part, last).slice(-1)
  })
  return times.length === 0 ? undefined : Math.max(...times.map(({ timestamp }) => timestamp))
}

/** Decodes a chunk (a stored value with several records) to its records; returns none when it is damaged. */
function recordsOf({ topic, partition }: Decoded, chunk: FoundChunk): readonly BusRecord[] {
  const records: BusRecord[] = []
  try {
    decodeChunk(chunk.bytes(), topic.topic, partition, chunk.key, 0, Number.POSITIVE_INFINITY, records)
    return records
  } catch (thrown) {
    if (thrown instanceof DamagedPage || (thrown instanceof TroupeError && thrown.code === 'bus.corrupt')) return []
    throw thrown
  }
}

/**
 * Finds the end offset of the intact records of a partition from offset 0 on, and the time of the last of them.
 * `isCut`: a damaged chunk or a gap follows them.
 */
function intactEnd(part: Part): { readonly end: number; readonly lastAt: number | undefined; readonly isCut: boolean } {
  let end = 0
  let lastAt: number | undefined
  for (const chunk of part.chunks) {
    const records = recordsOf(part, chunk)
    if (records[0]?.offset !== end) return { end, lastAt, isCut: true }
    end = chunk.last + 1
    lastAt = records[records.length - 1]!.timestamp
  }
  return { end, lastAt, isCut: false }
}

/**
 * Number of the step whose `step.completed` the record is; undefined for other records and for those that cannot be
 * read.
 */
function completedStep(record: BusRecord): number | undefined {
  if (record.headers.type !== 'step.completed') return undefined
  try {
    const message = decode(record)
    return message.type === 'step.completed' ? message.step : undefined
  } catch (thrown) {
    if (thrown instanceof MessageError) return undefined
    throw thrown
  }
}

function firstAt(part: Part): number | undefined {
  const [first] = part.chunks
  return first && recordsOf(part, first)[0]?.timestamp
}

const impossible = (run: string, why: string, hint: string): TroupeError =>
  new TroupeError('replay.salvage_impossible', {
    ...{ boundary: 'replay', retriable: false, hint },
    message: `run '${run}' cannot be salvaged: ${why}`,
  })
