/**
 * The rows of the index of a run: of every trajectory what `replay ls` says of it, and where its records stand.
 *
 * in   the records of `trajectories`, in each partition's order        out  a row a trajectory, in the order of asking
 * Invariant: rows follow from the records before `ends` alone, so rows that are kept and go on from there equal those
 * that are made anew. A decision of a former owner changes no row; its place is booked all the same.
 */
import { curriculumAfter, isReplaced, noCurriculum } from '../../actors/ownership/fencing'
import type { TrajectoryFact } from '../../messages/facts'
import { epoch, type GroupId, groupOf, memberOf, type TrajectoryId } from '../../messages/ids'
import type { BusRecord } from '../../runtime/bus/bus'
import type { Entry } from '../../runtime/journal/journal'

/** unasked: only later facts of it are there. unread: it was asked for in a record that cannot be read. */
export type RowState = 'unasked' | 'unread' | 'running' | 'answered' | 'truncated' | 'failed'
export type RowSelection = 'kept' | 'dropped' | 'rejected'

/** Partition, offset, partition, offset, …, in the log's order. */
export type Places = number[]

export interface GroupRow {
  readonly id: GroupId
  /** Of what was said about the whole group. */
  readonly places: Places
  readonly members: Row[]
  decided: boolean
}

export interface Row {
  readonly id: TrajectoryId
  readonly group: GroupRow
  readonly places: Places
  state: RowState
  purpose: string
  step: number
  task: string
  at: number
  reason: string
  reward: number | null
  turns: number
  sampledTokens: number
  toolCalls: number
  toolErrors: number
  /** Ascending. */
  versions: number[]
  selection: RowSelection | null
  advantage: number | null
}

/** What of a partition stands in the rows: how far, and who claimed it when. */
export interface PartitionRows {
  next: number
  /** `partition.claimed`, `scheduler.claimed` and `curriculum.claimed`. */
  readonly claims: number[]
  /** The latest `partition.claimed`; -1 before the first. */
  epoch: number
  /** Epoch of the curriculum that counts; -1 before the first claim. */
  curriculum: number
}

/** Facts of which a row says only where they stand. */
const placedOnly: ReadonlySet<string> = new Set<TrajectoryFact['type']>([
  'partition.claimed',
  'scheduler.claimed',
  'turn.asked',
  'tool.asked',
  'context.appended',
  'group.closed',
])

export class IndexRows {
  readonly rows = new Map<TrajectoryId, Row>()
  readonly groups = new Map<GroupId, GroupRow>()
  readonly partitions: PartitionRows[] = []

  partition(number: number): PartitionRows {
    while (this.partitions.length <= number)
      this.partitions.push({ next: 0, claims: [], epoch: -1, curriculum: noCurriculum })
    return this.partitions[number]!
  }

  /** Books where a record stands, by its headers; says whether it has to be unpacked as well. */
  place({ headers, partition, offset }: BusRecord): boolean {
    const { type, trajectory } = headers
    if (type === 'partition.claimed' || type === 'scheduler.claimed') {
      const of = this.partition(partition)
      of.claims.push(offset)
      if (type === 'partition.claimed') of.epoch = offset
      return false
    }
    if (type === 'curriculum.claimed') {
      this.partition(partition).claims.push(offset)
      return true
    }
    if (trajectory !== undefined && isTrajectoryId(trajectory)) {
      const row = this.row(trajectory)
      if (type === 'rollout.requested' && row.state === 'unasked') row.state = 'unread'
      row.places.push(partition, offset)
    } else if (headers.group !== undefined && type?.startsWith('group.')) {
      this.group(headers.group as GroupId).places.push(partition, offset)
    }
    return type === undefined || !placedOnly.has(type)
  }

  take({ message, partition }: Entry): void {
    const fact = message as TrajectoryFact
    const of = this.partition(partition)
    if (isReplaced(of.curriculum, fact)) {
      const row = 'trajectory' in fact ? this.rows.get(fact.trajectory) : undefined
      if (row?.state === 'unread') row.state = 'unasked'
      return
    }
    of.curriculum = curriculumAfter(of.curriculum, fact)
    if ('epoch' in fact && fact.epoch !== epoch(of.epoch)) return
    if (fact.type === 'group.selected' || fact.type === 'group.rejected') {
      this.decide(fact)
      return
    }
    const row = 'trajectory' in fact ? this.rows.get(fact.trajectory) : undefined
    if (row === undefined) return
    if (fact.type === 'rollout.requested') {
      if (row.state !== 'unread') return
      row.state = 'running'
      row.purpose = fact.purpose
      row.step = fact.step
      row.task = fact.task.id
      row.at = fact.at
      row.group.members.push(row)
      return
    }
    if (fact.type === 'reward.assigned') row.reward ??= fact.reward
    if (row.state !== 'running') return
    switch (fact.type) {
      case 'turn.completed':
        row.turns = Math.max(row.turns, fact.turn + 1)
        row.sampledTokens += fact.tokens.length
        for (const { policyVersion } of fact.segments) addVersion(row, policyVersion)
        break
      case 'turn.interrupted':
        row.sampledTokens += fact.tokens.length
        for (const { policyVersion } of fact.segments) addVersion(row, policyVersion)
        break
      case 'tool.completed':
        row.toolCalls++
        if (fact.status !== 'ok') row.toolErrors++
        break
      case 'rollout.finished':
        row.state = fact.outcome
        row.reason = fact.reason
        row.turns = fact.turns
        row.sampledTokens = fact.sampledTokens
        row.toolCalls = fact.toolCalls
        row.toolErrors = fact.toolErrors
        break
    }
  }

  group(id: GroupId): GroupRow {
    let group = this.groups.get(id)
    if (group === undefined) {
      group = newGroup(id)
      this.groups.set(id, group)
    }
    return group
  }

  private row(id: TrajectoryId): Row {
    let row = this.rows.get(id)
    if (row === undefined) {
      row = newRow(id, this.group(groupOf(id)))
      this.rows.set(id, row)
    }
    return row
  }

  private decide(fact: Extract<TrajectoryFact, { type: 'group.selected' | 'group.rejected' }>): void {
    const group = this.group(fact.group)
    if (group.decided) return
    group.decided = true
    for (const row of group.members) {
      const member = memberOf(row.id)
      const kept = fact.type === 'group.selected' ? fact.kept.find(k => k.member === member) : undefined
      row.selection = fact.type === 'group.rejected' ? 'rejected' : kept === undefined ? 'dropped' : 'kept'
      row.advantage = kept?.advantage ?? null
    }
  }
}

export const newGroup = (id: GroupId): GroupRow => ({ id, places: [], members: [], decided: false })

/** Made a hundred thousand times at once: spreads would cost more than all the rest. */
export function newRow(id: TrajectoryId, group: GroupRow, places: Places = []): Row {
  return {
    id,
    group,
    places,
    state: 'unasked',
    purpose: '',
    step: 0,
    task: '',
    at: 0,
    reason: '',
    reward: null,
    turns: 0,
    sampledTokens: 0,
    toolCalls: 0,
    toolErrors: 0,
    versions: [],
    selection: null,
    advantage: null,
  }
}

/** What stands in a header is text of anybody's. */
const isTrajectoryId = (text: string): text is TrajectoryId => /^[^/]+\/\d{1,9}$/.test(text)

function addVersion(row: Row, version: number): void {
  if (row.versions.at(-1) === version || row.versions.includes(version)) return
  row.versions.push(version)
  row.versions.sort((a, b) => a - b)
}
