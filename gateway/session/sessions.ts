/**
 * All sessions of a gateway: opened, found by path or key, rewarded and ended. Each of these is a fact.
 *
 * in   requests of the sessions API; the run's log when the gateway starts
 * out  facts of `trajectories`; states of sessions
 * Invariant: a key names one session and one opening of it: a new opening makes the key stale, and no other session
 * ever gets it. A state changes only by a durable fact, except that a call's request is placed before its fact is durable.
 */
import { createHash } from 'node:crypto'
import { countAnswerTags } from '../../kernels'
import type { Fact, RolloutRequested, Task } from '../../messages/facts'
import {
  type Epoch,
  type GroupId,
  groupId,
  policyVersion,
  type TrajectoryId,
  taskId,
  trajectoryId,
} from '../../messages/ids'
import { deriveSeed, type Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'
import type { ConversationIndexOptions } from '../conversation/conversationIndex'
import { GatewayError, invalid } from '../gatewayError'
import { applyFact, countsOf, isSessionFact, newSession, type SessionFact, type SessionState } from './session'

export interface SessionsOptions extends ConversationIndexOptions {
  readonly journal: Journal
  readonly fx: Effects
  readonly seed: number
  readonly limits: RolloutRequested['limits']
  readonly sampling: RolloutRequested['sampling']
  readonly deadlineMs: number
  /** Offset of this process's claim, by partition. */
  readonly epochs: readonly Epoch[]
  /** Default time until a session ends by itself, ms. */
  readonly ttlMs: number
}

export interface OpenRequest {
  readonly id?: string
  readonly group?: string
  readonly slot?: number
  readonly groupSize?: number
  readonly task?: Partial<Pick<Task, 'id' | 'truth' | 'metadata' | 'reward'>>
  readonly policy?: 'train' | 'eval' | 'fork'
  readonly parent?: string
  readonly ttlMs?: number
  /** Key to open the session with. Default: a new one. */
  readonly key?: string
}

export interface Opened {
  readonly session: SessionState
  readonly opening: number
  readonly key: string
  readonly expiresAt: number
}

export type SessionEnding = 'done' | 'failed' | 'timeout' | 'cancelled'

export const keyDigest = (key: string): string => createHash('sha256').update(key).digest('hex')

export class Sessions {
  private readonly byId = new Map<string, SessionState>()
  private readonly byKey = new Map<string, { readonly id: string; readonly opening: number }>()
  private readonly inGroup = new Map<GroupId, Map<number, SessionState>>()
  private requests = new Map<string, RolloutRequested>()
  private order = 0
  private groups = 0
  private listeners = new Set<(fact: SessionFact) => void>()

  constructor(readonly options: SessionsOptions) {}

  /** Reads the run's log, so that every session is as its last fact left it. */
  async recover(): Promise<void> {
    const { journal } = this.options
    for (let partition = 0; partition < (await journal.partitionsOf('trajectories')); partition++) {
      const { oldest, next } = await journal.offsets('trajectories', partition)
      for await (const entries of journal.readTo('trajectories', partition, oldest, next))
        for (const { message } of entries) this.apply(message as Fact)
    }
    this.requests.clear()
  }

  get(id: string): SessionState {
    const session = this.byId.get(id)
    if (session !== undefined) return session
    throw new GatewayError({ kind: 'not-found', code: 'no_session', message: `there is no session '${id}'` })
  }

  list(): readonly SessionState[] {
    return [...this.byId.values()]
  }

  /** Finds the session of a key. @throws GatewayError `unauthorized` for an unknown key, `conflict` for a stale one */
  byKeyText(key: string): SessionState {
    const found = this.byKey.get(keyDigest(key))
    if (found === undefined)
      throw new GatewayError({
        kind: 'unauthorized',
        code: 'unknown_key',
        message: 'the key belongs to no session of this gateway',
      })
    const session = this.byId.get(found.id)!
    const now = session.calls.tree.opened!.opening
    if (found.opening === now) return session
    throw new GatewayError({
      kind: 'conflict',
      code: 'stale_key',
      message: `the key is of opening ${found.opening} of session ${found.id}, which has been opened again (${now}): this agent was replaced`,
    })
  }

  knows(key: string): boolean {
    return this.byKey.has(keyDigest(key))
  }

  /** @throws GatewayError unless calls of the session still count */
  checkOpen(session: SessionState): void {
    if (session.ended !== null)
      throw new GatewayError({
        kind: 'conflict',
        code: 'session_ended',
        message: `session ${session.id} has ended: ${session.ended.reason}`,
      })
    if (session.calls.tree.opened!.expiresAt < this.options.fx.now())
      throw new GatewayError({
        kind: 'conflict',
        code: 'session_expired',
        message: `session ${session.id} has expired`,
      })
  }

  /** Opens a new session, or an existing one again for another agent, whose calls then replace those of the one before. */
  async open(wanted: OpenRequest): Promise<Opened> {
    const { fx } = this.options
    const key = wanted.key ?? `troupe-${fx.unique()}`
    const at = fx.now()
    const expiresAt = at + (wanted.ttlMs ?? this.options.ttlMs)
    const facts: Fact[] = []
    const known = wanted.id === undefined ? undefined : this.get(wanted.id)
    if (known !== undefined) this.checkOpen(known)
    const request = known?.request ?? this.requestFor(wanted)
    if (known === undefined) facts.push(request)
    const opening = (known?.calls.tree.opened?.opening ?? -1) + 1
    const parent = wanted.parent === undefined ? {} : { parent: this.get(wanted.parent).id }
    facts.push({
      ...{ type: 'session.opened', at, trajectory: request.trajectory, opening, keyDigest: keyDigest(key), expiresAt },
      ...parent,
    })
    if (known === undefined) this.reserve(request)
    await this.write(facts)
    return { session: this.get(request.trajectory), opening, key, expiresAt }
  }

  /** Assigns the reward, once. The same reward again changes nothing; another one is a conflict. */
  async reward(session: SessionState, value: number, how: string, why: string): Promise<void> {
    if (!Number.isFinite(value)) throw invalid(`the reward is ${value}, expected a finite number`, 'value')
    const { reward } = session
    if (reward !== null) {
      if (reward.reward === value && reward.how === how) return
      const message = `session ${session.id} has the reward ${reward.reward} already`
      throw new GatewayError({ kind: 'conflict', code: 'rewarded', message })
    }
    const at = this.options.fx.now()
    await this.write([
      {
        type: 'reward.assigned',
        at,
        trajectory: session.id,
        attempt: 0,
        reward: value,
        answer: '',
        how,
        ...(why === '' ? {} : { why }),
      },
    ])
  }

  /** Ends the session; calls are refused from now on. A second end changes nothing. */
  async end(session: SessionState, outcome: SessionEnding, reason: string): Promise<void> {
    if (session.ended !== null) return
    const { fx } = this.options
    const { text, ...counts } = countsOf(session)
    const at = fx.now()
    await this.write([
      {
        ...{ type: 'rollout.finished', at, trajectory: session.id, epoch: this.epoch(), ...counts },
        ...{ outcome: outcome === 'done' ? 'answered' : 'failed', reason: reason || outcome },
        answerTags: countAnswerTags(text),
      },
      // Groups and readers count a reward only after the rollout's end: a reward that came earlier is written again, unchanged.
      ...(session.reward === null ? [] : [session.reward]),
    ])
    const members = [...this.inGroup.get(session.request.group)!.values()]
    if (members.length < session.request.groupSize || members.some(one => one.ended === null)) return
    const rewarded = members
      .filter(one => one.reward !== null && one.ended!.outcome !== 'failed')
      .map(one => one.request.member)
    const { group } = session.request
    rewarded.sort((a, b) => a - b)
    await this.options.journal.append([
      { type: 'group.closed', at, group, epoch: this.epoch(), reason: 'complete', rewarded },
    ])
  }

  /** Appends facts and applies them once they are durable. */
  async write(facts: readonly Fact[]): Promise<void> {
    try {
      await this.options.journal.append(facts)
    } catch (thrown) {
      const { message } = asError(thrown)
      throw new GatewayError({
        kind: 'unavailable',
        code: 'log_failed',
        message: `the log cannot be written: ${message}`,
        cause: thrown,
      })
    }
    for (const fact of facts) this.apply(fact)
  }

  /** Iterates over the facts of a session that are in the log. */
  async *recorded(id: TrajectoryId): AsyncGenerator<SessionFact> {
    const { journal } = this.options
    for (let partition = 0; partition < (await journal.partitionsOf('trajectories')); partition++) {
      const { oldest, next } = await journal.offsets('trajectories', partition)
      for await (const entries of journal.readTo('trajectories', partition, oldest, next))
        for (const { message } of entries) if (isSessionFact(message) && message.trajectory === id) yield message
    }
  }

  /** Calls `listener` with each fact of a session, until the returned function is called. */
  listen(listener: (fact: SessionFact) => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  /** Applies a fact that is in the log, or whose record is being written. */
  apply(fact: Fact): void {
    if (fact.type === 'rollout.requested') {
      if (!this.requests.has(fact.trajectory) && !this.byId.has(fact.trajectory)) this.reserve(fact)
      return
    }
    if (!isSessionFact(fact)) return
    let session = this.byId.get(fact.trajectory)
    if (session === undefined) {
      const request = this.requests.get(fact.trajectory)
      if (request === undefined || fact.type !== 'session.opened') return
      session = newSession(request, this.options)
      this.byId.set(fact.trajectory, session)
      this.requests.delete(fact.trajectory)
      const members = this.inGroup.get(request.group) ?? new Map<number, SessionState>()
      this.inGroup.set(request.group, members.set(request.member, session))
    }
    if (fact.type === 'session.opened') this.byKey.set(fact.keyDigest, { id: session.id, opening: fact.opening })
    if (applyFact(session, fact, this.options)) for (const listener of this.listeners) listener(fact)
  }

  private epoch(): Epoch {
    return this.options.epochs[0]!
  }

  /** Takes the place of a session that is about to be opened, so that no other gets it. */
  private reserve(request: RolloutRequested): void {
    this.requests.set(request.trajectory, request)
    this.order = Math.max(this.order, request.order + 1)
    const number = /^agent\.(\d+)$/.exec(request.group)?.[1]
    if (number !== undefined) this.groups = Math.max(this.groups, Number(number) + 1)
  }

  private requestFor({
    group: named,
    slot,
    groupSize = 1,
    task = {},
    policy = 'train',
  }: OpenRequest): RolloutRequested {
    const { fx, seed, limits, sampling, deadlineMs } = this.options
    let group: GroupId
    try {
      group = groupId(named ?? `agent.${String(this.groups).padStart(4, '0')}`)
    } catch (thrown) {
      throw invalid(asError(thrown).message, 'group')
    }
    const isTaken = (one: number) => this.byId.has(`${group}/${one}`) || this.requests.has(`${group}/${one}`)
    let member = slot ?? 0
    while (slot === undefined && isTaken(member)) member++
    if (isTaken(member))
      throw new GatewayError({
        kind: 'conflict',
        code: 'slot_taken',
        message: `slot ${member} of group ${group} has a session: name it by its id to open it again`,
      })
    if (member >= groupSize && slot !== undefined)
      throw invalid(`slot ${member} is not below the group's size, ${groupSize}`, 'slot')
    const trajectory: TrajectoryId = trajectoryId(group, member)
    return {
      ...{
        type: 'rollout.requested',
        at: fx.now(),
        trajectory,
        group,
        member,
        groupSize: Math.max(groupSize, member + 1),
      },
      ...{ purpose: policy, step: 0, order: this.order, tokens: new Int32Array(), tools: [], limits, sampling },
      task: {
        id: taskId(task.id ?? group),
        messages: [],
        truth: task.truth ?? '',
        reward: task.reward ?? '',
        ...(task.metadata ? { metadata: task.metadata } : {}),
      },
      ...{ seed: deriveSeed(seed, group, member), minVersion: policyVersion(0), deadlineMs },
    }
  }
}
