/**
 * The index of a run as a file: a head in JSON, then a column a field, so that one row can be looked up without the rest.
 *
 * in   rows and what they were made from        out  bytes; and back, as a view that copies nothing until it is asked
 * Layout: 8 bytes magic, u32 format, u32 crc32 of all that follows, u32 bytes of the head, the head, then the columns that
 * it names, each on a multiple of 8 bytes, little-endian.
 * Invariant: bytes of another format, or that are not those that were written, are no index: `readIndex` says undefined.
 */
import { crc32 } from 'node:zlib'
import type { GroupId, TrajectoryId } from '../../../messages/ids'
import type { Fault } from '../recordedRun'
import { type GroupRow, IndexRows, newRow, type Places, type Row, type RowSelection, type RowState } from './rows'

export interface KeptPartition {
  readonly oldest: number
  readonly next: number
  readonly claims: readonly number[]
  readonly epoch: number
  /** What stood at the first and at the last place when it was made; null: nothing that could be read. */
  readonly first: string | null
  readonly last: string | null
}

export interface IndexHead {
  /** Which log, for people. */
  readonly source: string
  /** Of the message schemas that the facts were read under. */
  readonly schema: string
  readonly partitions: readonly KeptPartition[]
  /** What could not be read. */
  readonly faults: readonly Fault[]
}

export interface IndexView {
  readonly head: IndexHead
  readonly size: number
  /** Rows in the order in which they were asked for, for reading: without their places and groups. */
  row(index: number): Omit<Row, 'places' | 'group'>
  id(index: number): TrajectoryId
  state(index: number): RowState
  find(id: string): number | undefined
  /** Where its facts stand. */
  places(index: number): Places
  /** Where the facts about its whole group stand. */
  groupPlaces(index: number): Places
  /** Rows to go on from. */
  rows(): IndexRows
}

const magic = 'TRPINDEX'
/** Raise it with every change of the columns, or of what rows say. */
const format = 1
const headAt = 20
const states: readonly RowState[] = ['unasked', 'unread', 'running', 'answered', 'truncated', 'failed']
const selections: readonly (RowSelection | null)[] = [null, 'kept', 'dropped', 'rejected']

const nowhere: Places = []
const noGroup: GroupRow = { id: '' as GroupId, places: nowhere, members: [], decided: false }

type Column = Uint8Array | Uint32Array | Float64Array

export function writeIndex(rows: IndexRows, head: IndexHead): Buffer {
  const all = [...rows.rows.values()]
  const groups = [...rows.groups.values()]
  const groupNumbers = new Map(groups.map((group, i) => [group, i]))
  const number = (of: (row: Row) => number | null) => Float64Array.from(all, row => of(row) ?? Number.NaN)
  const columns: Record<string, Column> = {
    ...stringColumn(
      'id',
      all.map(r => r.id),
    ),
    ...stringColumn(
      'group',
      groups.map(g => g.id),
    ),
    ...dictionary(
      'purpose',
      all.map(r => r.purpose),
    ),
    ...dictionary(
      'task',
      all.map(r => r.task),
    ),
    ...dictionary(
      'reason',
      all.map(r => r.reason),
    ),
    ...listColumn(
      'places',
      all.map(r => packPlaces(r.places)),
    ),
    ...listColumn(
      'groupPlaces',
      groups.map(g => packPlaces(g.places)),
    ),
    ...listColumn(
      'versions',
      all.map(r => packPlaces(r.versions.flatMap(v => [0, v]))),
    ),
    groupOf: Uint32Array.from(all, r => groupNumbers.get(r.group)!),
    state: Uint8Array.from(all, r => states.indexOf(r.state)),
    selection: Uint8Array.from(all, r => selections.indexOf(r.selection)),
    decided: Uint8Array.from(groups, g => (g.decided ? 1 : 0)),
    step: number(r => r.step),
    at: number(r => r.at),
    reward: number(r => r.reward),
    advantage: number(r => r.advantage),
    turns: number(r => r.turns),
    sampledTokens: number(r => r.sampledTokens),
    toolCalls: number(r => r.toolCalls),
    toolErrors: number(r => r.toolErrors),
  }
  // A NaN that was recorded is told from a field that is not there.
  columns.rewarded = Uint8Array.from(all, r => (r.reward === null ? 0 : 1))
  columns.advantaged = Uint8Array.from(all, r => (r.advantage === null ? 0 : 1))

  const directory: Record<string, { at: number; length: number }> = {}
  let end = 0
  for (const [name, column] of Object.entries(columns)) {
    directory[name] = { at: end, length: column.length }
    end += padded(column.byteLength)
  }
  const headBytes = Buffer.from(JSON.stringify({ ...head, directory }))
  const bodyAt = padded(headAt + headBytes.length)
  const bytes = Buffer.alloc(bodyAt + end)
  bytes.write(magic, 0, 'latin1')
  bytes.writeUInt32LE(format, 8)
  bytes.writeUInt32LE(headBytes.length, 16)
  headBytes.copy(bytes, headAt)
  for (const [name, column] of Object.entries(columns)) {
    bytes.set(new Uint8Array(column.buffer, column.byteOffset, column.byteLength), bodyAt + directory[name]!.at)
  }
  bytes.writeUInt32LE(crc32(bytes.subarray(16)), 12)
  return bytes
}

/** undefined where the bytes are no index of this format: torn, changed, or of another version. */
export function readIndex(given: Buffer): IndexView | undefined {
  if (given.length < headAt || given.toString('latin1', 0, 8) !== magic || given.readUInt32LE(8) !== format) {
    return undefined
  }
  if (crc32(given.subarray(16)) !== given.readUInt32LE(12)) return undefined
  const bytes = given.byteOffset % 8 === 0 ? given : Buffer.from(new Uint8Array(given).buffer)
  const headLength = bytes.readUInt32LE(16)
  const { directory, ...head } = JSON.parse(bytes.toString('utf8', headAt, headAt + headLength)) as IndexHead & {
    readonly directory: Readonly<Record<string, { readonly at: number; readonly length: number }>>
  }
  const bodyAt = bytes.byteOffset + padded(headAt + headLength)
  const placed = <T>(name: string, make: new (buffer: ArrayBuffer, at: number, length: number) => T): T => {
    const { at, length } = directory[name]!
    return new make(bytes.buffer as ArrayBuffer, bodyAt + at, length)
  }
  const u8 = (name: string) => placed(name, Uint8Array)
  const u32 = (name: string) => placed(name, Uint32Array)
  const f64 = (name: string) => placed(name, Float64Array)
  const lists = (name: string) => {
    const [ends, packed] = [u32(`${name}.ends`), u8(`${name}.bytes`)]
    return (i: number): Uint8Array => packed.subarray(i === 0 ? 0 : ends[i - 1]!, ends[i]!)
  }
  const strings = (name: string) => {
    const [ends, { at, length }] = [u32(`${name}.ends`), directory[`${name}.bytes`]!]
    const packed = Buffer.from(bytes.buffer as ArrayBuffer, bodyAt + at, length)
    return (i: number): string => packed.toString('utf8', i === 0 ? 0 : ends[i - 1]!, ends[i]!)
  }
  const words = (name: string) => {
    const [text, chosen] = [strings(`${name}.words`), u32(name)]
    const known: string[] = []
    return (i: number): string => (known[chosen[i]!] ??= text(chosen[i]!))
  }
  const [id, groupId, purpose, task, reason] = [
    strings('id'),
    strings('group'),
    words('purpose'),
    words('task'),
    words('reason'),
  ]
  const [places, groupPlaces, versions] = [lists('places'), lists('groupPlaces'), lists('versions')]
  const [groupNumber, state, selection, decided] = [u32('groupOf'), u8('state'), u8('selection'), u8('decided')]
  const [step, at, reward, advantage] = [f64('step'), f64('at'), f64('reward'), f64('advantage')]
  const [rewarded, advantaged] = [u8('rewarded'), u8('advantaged')]
  const [turns, sampledTokens, toolCalls, toolErrors] = [
    f64('turns'),
    f64('sampledTokens'),
    f64('toolCalls'),
    f64('toolErrors'),
  ]
  const idEnds = u32('id.ends')
  const idBytes = Buffer.from(
    bytes.buffer as ArrayBuffer,
    bodyAt + directory['id.bytes']!.at,
    directory['id.bytes']!.length,
  )

  const rows = (): IndexRows => {
    const made = new IndexRows()
    head.partitions.forEach(({ next, claims, epoch }, p) => {
      Object.assign(made.partition(p), { next, epoch })
      made.partition(p).claims.push(...claims)
    })
    const groups = Array.from({ length: decided.length }, (_, g) => {
      const group = made.group(groupId(g) as GroupId)
      group.places.push(...unpackPlaces(groupPlaces(g)))
      group.decided = decided[g] === 1
      return group
    })
    for (let i = 0; i < state.length; i++) {
      const group = groups[groupNumber[i]!]!
      const row = fill(i, newRow(id(i) as TrajectoryId, group, unpackPlaces(places(i))))
      row.versions = [...row.versions]
      made.rows.set(row.id, row)
      if (row.state !== 'unasked' && row.state !== 'unread') group.members.push(row)
    }
    return made
  }

  /** Most rows have one of few lists: those share it. */
  const versionLists = new Map<string, number[]>()
  const versionsOf = (i: number): number[] => {
    const packed = versions(i)
    const key = String.fromCharCode(...packed)
    let list = versionLists.get(key)
    if (list === undefined) {
      list = unpackPlaces(packed).filter((_, k) => k % 2 === 1)
      versionLists.set(key, list)
    }
    return list
  }

  const fill = (i: number, row: Row): Row => {
    row.state = states[state[i]!]!
    row.purpose = purpose(i)
    row.step = step[i]!
    row.task = task(i)
    row.at = at[i]!
    row.reason = reason(i)
    row.reward = rewarded[i] === 1 ? reward[i]! : null
    row.turns = turns[i]!
    row.sampledTokens = sampledTokens[i]!
    row.toolCalls = toolCalls[i]!
    row.toolErrors = toolErrors[i]!
    row.versions = versionsOf(i)
    row.selection = selections[selection[i]!]!
    row.advantage = advantaged[i] === 1 ? advantage[i]! : null
    return row
  }

  return {
    head,
    size: state.length,
    row: i => fill(i, newRow(id(i) as TrajectoryId, noGroup, nowhere)),
    id: i => id(i) as TrajectoryId,
    state: i => states[state[i]!]!,
    find(wanted) {
      const bytesOf = Buffer.from(wanted)
      if (bytesOf.length === 0) return undefined
      for (let from = idBytes.indexOf(bytesOf); from >= 0; from = idBytes.indexOf(bytesOf, from + 1)) {
        const i = rowEndingAfter(idEnds, from)
        if ((i === 0 ? 0 : idEnds[i - 1]) === from && idEnds[i] === from + bytesOf.length) return i
      }
      return undefined
    },
    places: i => unpackPlaces(places(i)),
    groupPlaces: i => unpackPlaces(groupPlaces(groupNumber[i]!)),
    rows,
  }
}

const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8

/** The first row whose text ends behind `at`. */
function rowEndingAfter(ends: Uint32Array, at: number): number {
  let [low, high] = [0, ends.length - 1]
  while (low < high) {
    const middle = (low + high) >> 1
    if (ends[middle]! > at) high = middle
    else low = middle + 1
  }
  return low
}

function listColumn(name: string, items: readonly Uint8Array[]): Record<string, Column> {
  let end = 0
  const ends = Uint32Array.from(items, item => {
    end += item.length
    return end
  })
  return { [`${name}.ends`]: ends, [`${name}.bytes`]: Buffer.concat(items) }
}

const stringColumn = (name: string, texts: readonly string[]) =>
  listColumn(
    name,
    texts.map(text => Buffer.from(text)),
  )

function dictionary(name: string, texts: readonly string[]): Record<string, Column> {
  const words = new Map<string, number>()
  for (const text of texts) if (!words.has(text)) words.set(text, words.size)
  return { ...stringColumn(`${name}.words`, [...words.keys()]), [name]: Uint32Array.from(texts, t => words.get(t)!) }
}

/** Offsets as differences, in bytes of 7 bits: of a pair, whether the partition is another, then which, then how far on. */
export function packPlaces(places: Places): Uint8Array {
  const bytes: number[] = []
  const put = (value: number): void => {
    let rest = value
    while (rest > 127) {
      bytes.push((rest % 128) + 128)
      rest = Math.floor(rest / 128)
    }
    bytes.push(rest)
  }
  let [partition, offset] = [0, 0]
  for (let i = 0; i < places.length; i += 2) {
    const difference = places[i + 1]! - offset
    const signed = difference < 0 ? -2 * difference - 1 : 2 * difference
    put(signed * 2 + (places[i] === partition ? 0 : 1))
    if (places[i] !== partition) put(places[i]!)
    partition = places[i]!
    offset = places[i + 1]!
  }
  return Uint8Array.from(bytes)
}

export function unpackPlaces(bytes: Uint8Array): Places {
  const places: Places = []
  let at = 0
  const get = (): number => {
    let [value, scale] = [0, 1]
    for (;;) {
      const byte = bytes[at++] ?? 0
      value += (byte & 127) * scale
      if (byte < 128) return value
      scale *= 128
    }
  }
  let [partition, offset] = [0, 0]
  while (at < bytes.length) {
    const head = get()
    const signed = Math.floor(head / 2)
    if (head % 2 === 1) partition = get()
    offset += signed % 2 === 1 ? -(signed + 1) / 2 : signed / 2
    places.push(partition, offset)
  }
  return places
}
