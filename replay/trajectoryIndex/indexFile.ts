/**
 * Stores the index of a run as a file with a column for each field, so that one row can be read without the others.
 *
 * in   rows and what they were built from
 * out  bytes; and back, as a view that makes an object of a row only when the row is read
 * Invariant: `readIndex` returns undefined for bytes of another format and for damaged bytes.
 */
import type { GroupId, TrajectoryId } from '../../messages/ids'
import type { Fault } from '../log/faults'
import { bytesOf, type Column, dictionary, listColumn, readColumns, stringColumn, writeColumns } from './columns'
import { packPlaces, unpackPlaces } from './packedPlaces'
import { type GroupRow, IndexRows, newRow, type Places, type Row, type RowSelection, type RowState } from './rows'

export interface IndexedPartition {
  readonly oldest: number
  readonly next: number
  readonly claims: readonly number[]
  readonly epoch: number
  readonly curriculum: number
  /**
   * Fingerprint of the partition's first record when the index was built; null when the record was unreadable or
   * missing, and in an index that is only held in memory.
   */
  readonly first: string | null
  /** Fingerprint of the partition's last record when the index was built; null as for `first`. */
  readonly last: string | null
}

export interface IndexHead {
  /** Address of the indexed log without secrets; an index of another address is not used. */
  readonly source: string
  /** Digest of the message schema versions that the facts were read under. */
  readonly schema: string
  readonly partitions: readonly IndexedPartition[]
  /** Records that could not be read when the index was built. */
  readonly faults: readonly Fault[]
}

export interface IndexView {
  readonly head: IndexHead
  readonly size: number
  /** Returns the row with number `index`, read-only, without its record positions and its group. */
  row(index: number): Omit<Row, 'places' | 'group'>
  id(index: number): TrajectoryId
  state(index: number): RowState
  find(id: string): number | undefined
  /** Positions of the row's own facts in the log. */
  places(index: number): Places
  /** Positions of the facts about the row's whole group. */
  groupPlaces(index: number): Places
  /** Returns all rows, to add newer records to: copies if the index is a file, the rows themselves if in memory. */
  rows(): IndexRows
}

/** Raise the format with every change of the columns or of the rows' meaning. */
const kind = { magic: 'TRPINDEX', format: 4 }
const states: readonly RowState[] = ['unasked', 'unread', 'running', 'answered', 'truncated', 'failed']
const selections: readonly (RowSelection | null)[] = [null, 'kept', 'dropped', 'rejected']

const nowhere: Places = []
const noGroup: GroupRow = { id: '' as GroupId, places: nowhere, members: [], decided: false }

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
    opening: number(r => r.opening),
  }
  // A separate flag, because a recorded NaN is not the same as a missing reward.
  columns.rewarded = Uint8Array.from(all, r => (r.reward === null ? 0 : 1))
  columns.advantaged = Uint8Array.from(all, r => (r.advantage === null ? 0 : 1))

  return writeColumns(kind, head, columns)
}

/** Opens an index. Returns undefined when the bytes are torn, changed, or of another format. */
export function readIndex(given: Buffer): IndexView | undefined {
  const file = readColumns<IndexHead>(kind, given)
  if (file === undefined) return undefined
  const { head, u8, u32, f64, lists, strings, words } = file
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
  const [rewarded, advantaged, opening] = [u8('rewarded'), u8('advantaged'), f64('opening')]
  const [turns, sampledTokens, toolCalls, toolErrors] = [
    f64('turns'),
    f64('sampledTokens'),
    f64('toolCalls'),
    f64('toolErrors'),
  ]
  const idEnds = u32('id.ends')
  const idBytes = bytesOf(u8('id.bytes'))

  const rows = (): IndexRows => {
    const made = new IndexRows()
    head.partitions.forEach(({ next, claims, epoch, curriculum }, p) => {
      Object.assign(made.partition(p), { next, epoch, curriculum })
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

  /** Lists of policy versions by their packed bytes. Many rows have equal lists, so that equal lists are shared. */
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
    row.opening = opening[i]!
    return row
  }

  return {
    head,
    size: state.length,
    row: i => fill(i, newRow(id(i) as TrajectoryId, noGroup, nowhere)),
    id: i => id(i) as TrajectoryId,
    state: i => states[state[i]!]!,
    find(wanted) {
      const text = Buffer.from(wanted)
      if (text.length === 0) return undefined
      for (let from = idBytes.indexOf(text); from >= 0; from = idBytes.indexOf(text, from + 1)) {
        const i = rowEndingAfter(idEnds, from)
        if ((i === 0 ? 0 : idEnds[i - 1]) === from && idEnds[i] === from + text.length) return i
      }
      return undefined
    },
    places: i => unpackPlaces(places(i)),
    groupPlaces: i => unpackPlaces(groupPlaces(groupNumber[i]!)),
    rows,
  }
}

/** Returns the first row whose id ends after byte `at` of the column of ids. `ends`: where each row's id ends in it. */
function rowEndingAfter(ends: Uint32Array, at: number): number {
  let [low, high] = [0, ends.length - 1]
  while (low < high) {
    const middle = (low + high) >> 1
    if (ends[middle]! > at) high = middle
    else low = middle + 1
  }
  return low
}
