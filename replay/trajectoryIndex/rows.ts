/**
 * Rows of a run's index: for every trajectory the values that `replay ls` shows, and the positions of its records.
 *
 * in   the records of `trajectories`, in each partition's order
 * out  a row for each trajectory, in the order in which the first record of each was read
 * Invariant: rows depend only on the records before each partition's offset `next`, so stored rows that are extended
 * equal rows that are rebuilt. A decision of a replaced owner changes no row, but its position is listed all the same.
 */
import { curriculumAfter, isReplaced, noCurriculum } from '../../actors/ownership/fencing'
import type { CallFact, TrajectoryFact } from '../../messages/facts'
import { epoch, type GroupId, groupOf, memberOf, type TrajectoryId } from '../../messages/ids'
import type { BusRecord } from '../../runtime/bus/bus'
import type { Entry } from '../../runtime/journal/journal'

/**
 * State of a trajectory in the log. unasked: the log has other facts of the trajectory, but no valid request. unread:
 * its request cannot be read. running: it has no `rollout.finished`. Otherwise the outcome of its `rollout.finished`.
 */
export type RowState = 'unasked' | 'unread' | 'running' | 'answered' | 'truncated' | 'failed'
export type RowSelection = 'kept' | 'dropped' | 'rejected'

/** Flat pairs: partition, offset, partition, offset, …, in the log's order. */
export type Places = number[]

export interface GroupRow {
  readonly id: GroupId
  /** Positions of the facts about the whole group. */
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
  /**
   * Number of the session's latest opening by an agent; -1: no agent drives the rollout. `turns` counts the answered
   * calls of that opening: those of earlier ones do not count.
   */
  opening: number
  /** Policy versions that sampled tokens of the trajectory, ascending. */
  versions: number[]
  selection: RowSelection | null
  advantage: number | null
}

/**
 * Progress of the index in one partition: the next offset to read, and the claims met so far (facts that change
 * owners).
 */
export interface PartitionRows {
  next: number
  /**
   * Offsets of the ownership claims in the partition: `partition.claimed`, `scheduler.claimed` and
   * `curriculum.claimed`.
   */
  readonly claims: number[]
  /** Offset of the latest `partition.claimed`; -1 before the first. */
  epoch: number
  /**
   * Epoch of the curriculum whose rollout requests are valid: the highest `learnerEpoch` of a claim or request so far,
   * which is the offset of that process's `learner.claimed` in the topic `learner`. -1 before the first.
   */
  curriculum: number
}

/** Types of facts whose content changes no row: only their positions are listed. */
const placedOnly: ReadonlySet<string> = new Set<(TrajectoryFact | CallFact)['type']>([
  'partition.claimed',
  'scheduler.claimed',
  'rollout.started',
  'turn.asked',
  'tool.asked',
  'context.appended',
  'group.closed',
  ...(['call.started', 'call.delivered'] as const),
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

  /** Adds a record's position to the rows, from its headers only. Returns true when the record must be decoded too. */
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
    const fact = message as TrajectoryFact | CallFact
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
      case 'session.opened':
        if (fact.opening <= row.opening) break
        row.opening = fact.opening
        row.turns = row.sampledTokens = row.toolCalls = row.toolErrors = 0
        row.versions = []
        break
      // Turns by which engines answer an agent's calls are not counted: their tokens are those of `call.finished`.
      case 'turn.completed':
        if (row.opening >= 0) break
        row.turns = Math.max(row.turns, fact.turn + 1)
        row.sampledTokens += fact.tokens.length
        for (const { policyVersion } of fact.segments) addVersion(row, policyVersion)
        break
      case 'turn.interrupted':
        if (row.opening >= 0) break
        row.sampledTokens += fact.tokens.length
        for (const { policyVersion } of fact.segments) addVersion(row, policyVersion)
        break
      case 'call.finished':
        if (fact.finish === 'failed') break
        row.turns++
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

/** Creates an empty row, without object spreads: they would take most of the time when 100,000 rows are created. */
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
    opening: -1,
    versions: [],
    selection: null,
    advantage: null,
  }
}

/** Checks a header's text, since any client can write headers. */
const isTrajectoryId = (text: string): text is TrajectoryId => /^[^/]+\/\d{1,9}$/.test(text)

function addVersion(row: Row, version: number): void {
  if (row.versions.at(-1) === version || row.versions.includes(version)) return
  row.versions.push(version)
  row.versions.sort((a, b) => a - b)
}
