/**
 * Manages all sessions of a gateway: opens them, finds them by id or key, rewards and ends them. An opening, a reward
 * and an end are facts; inside a run, the run writes the end.
 *
 * in   requests of the sessions API; the run's log when the gateway starts
 * out  facts of the topic `trajectories`; states of sessions
 * Invariant: a key names one session and one opening of it: a new opening makes the key stale, and no other session
 * ever gets it. A state changes only by a durable fact, with these exceptions: a call's request is placed before its
 * fact is durable, `told` and `exhausted` are kept only in memory, and `adopt` sets the number of the next call.
 */
import { hash } from 'node:crypto'
import type { Fact, RolloutRequested } from '../../messages/facts'
import { type Epoch, type GroupId, groupId, type TrajectoryId } from '../../messages/ids'
import { asError } from '../../runtime/errors'
import { generatedKey } from '../../runtime/secrets/generatedKey'
import { GatewayError, invalid } from '../gatewayError'
import { rewardFact } from './reward'
import { rolloutRequest } from './rolloutRequest'
import {
  applyFact,
  endFacts,
  isSessionFact,
  newSession,
  type SessionEnding,
  type SessionFact,
  type SessionState,
} from './session'
import type { Opened, OpenRequest, SessionsOptions } from './sessionOptions'

export const keyDigest = (key: string): string => hash('sha256', key, 'hex')

export class Sessions {
  private readonly byId = new Map<string, SessionState>()
  private readonly byKey = new Map<string, { readonly id: string; readonly opening: number }>()
  private readonly closed = new Set<GroupId>()
  private readonly inGroup = new Map<GroupId, Map<number, SessionState>>()
  private requests = new Map<string, RolloutRequested>()
  private order = 0
  private groups = 0
  private listeners = new Set<(fact: SessionFact) => void>()

  constructor(readonly options: SessionsOptions) {}

  /** Rebuilds the state of every session from the run's log. */
  async recover(): Promise<void> {
    const { journal } = this.options
    for (let partition = 0; partition < (await journal.partitionsOf('trajectories')); partition++) {
      const { oldest, next } = await journal.offsets('trajectories', partition)
      for await (const entries of journal.readTo('trajectories', partition, oldest, next))
        for (const { message } of entries) this.apply(message as Fact)
    }
    this.requests.clear()
    if (this.options.run === undefined) for (const group of this.inGroup.keys()) await this.closeIfComplete(group)
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
    const session = this.ofKey(key)
    if (session !== undefined) return session
    throw new GatewayError({
      kind: 'unauthorized',
      code: 'unknown_key',
      message: 'the key belongs to no session of this gateway',
    })
  }

  /** Finds the session of a key; undefined for an unknown key. @throws GatewayError `conflict` for a stale one */
  ofKey(key: string): SessionState | undefined {
    const found = this.byKey.get(keyDigest(key))
    if (found === undefined) return undefined
    const session = this.byId.get(found.id)!
    const now = session.calls.tree.opened!.opening
    if (found.opening === now) return session
    throw new GatewayError({
      kind: 'conflict',
      code: 'stale_key',
      message: `the key is of opening ${found.opening} of session ${found.id}, which has been opened again (opening ${now}): this agent was replaced`,
    })
  }

  /** Checks that a session accepts calls. @throws GatewayError `conflict` if it has ended or expired */
  checkOpen(session: SessionState): void {
    const end = session.ended ?? session.told
    if (end !== null) {
      const message = `session ${session.id} has ended: ${end.reason}`
      throw new GatewayError({ kind: 'conflict', code: 'session_ended', message })
    }
    if (session.calls.tree.opened!.expiresAt < this.options.fx.now())
      throw new GatewayError({
        kind: 'conflict',
        code: 'session_expired',
        message: `session ${session.id} has expired: open a new one, with a longer ttl_s if the agent needs it`,
      })
  }

  /**
   * Opens a new session, or an existing one again for another agent, whose calls then replace the earlier agent's.
   */
  async open(wanted: OpenRequest): Promise<Opened> {
    const { fx, openBound } = this.options
    const key = wanted.key ?? generatedKey(fx.unique())
    const at = fx.now()
    const expiresAt = at + (wanted.ttlMs ?? this.options.ttlMs)
    const facts: Fact[] = []
    const known = wanted.id === undefined ? undefined : this.get(wanted.id)
    if (known !== undefined) this.checkOpen(known)
    if (known === undefined) openBound?.check(this.requests.size, at)
    const request = known?.request ?? this.requestFor(wanted)
    if (known === undefined) facts.push(request)
    const opening = (known?.calls.tree.opened?.opening ?? -1) + 1
    const parent = wanted.parent === undefined ? {} : { parent: this.get(wanted.parent).id }
    facts.push({
      ...{ type: 'session.opened', at, trajectory: request.trajectory, opening, keyDigest: keyDigest(key), expiresAt },
      ...parent,
    })
    if (known === undefined) this.reserve(request)
    await this.writeOpening(facts, request)
    return { session: this.get(request.trajectory), opening, key, expiresAt }
  }

  /**
   * Opens the session of a rollout that the run requested. `opening` and `call`: numbers of this opening and of its
   * first call, which the caller knows from the log.
   */
  async adopt(
    request: RolloutRequested,
    { opening, call, key }: { readonly opening: number; readonly call: number; readonly key: string },
  ): Promise<SessionState> {
    const at = this.options.fx.now()
    const expiresAt = at + this.options.ttlMs
    const { trajectory } = request
    this.reserve(request)
    await this.writeOpening(
      [{ type: 'session.opened', at, trajectory, opening, keyDigest: keyDigest(key), expiresAt }],
      request,
    )
    const session = this.get(trajectory)
    session.calls.skipTo(call)
    return session
  }

  /**
   * Assigns the reward, once. The same reward again changes nothing; another one, or one after the group was closed, is
   * a conflict.
   */
  async reward(session: SessionState, value: number, how: string, why: string): Promise<void> {
    const { fx, run } = this.options
    const isClosed = this.closed.has(session.request.group)
    const given = { at: fx.now(), value, how, why, isTaken: run?.takesRewards !== false, isClosed }
    const fact = rewardFact(session, given)
    if (fact !== undefined) await this.write([fact])
  }

  /**
   * Ends the session; calls are refused from now on. A second end changes nothing. Inside a run it writes no fact: the
   * run ends the rollout when the agent's program has ended.
   */
  async end(session: SessionState, outcome: SessionEnding, reason: string): Promise<void> {
    if (session.ended !== null) return
    if (this.options.run !== undefined) {
      session.told ??= { outcome, reason }
      return
    }
    const at = this.options.fx.now()
    const ending = { outcome: outcome === 'done' ? 'answered' : 'failed', reason: reason || outcome } as const
    await this.write(endFacts(session, ending, this.epoch(), at))
    await this.closeIfComplete(session.request.group)
  }

  /** Closes a group once all its members have ended. If this process dies first, the next one's `recover` closes it. */
  private async closeIfComplete(group: GroupId): Promise<void> {
    const members = [...this.inGroup.get(group)!.values()]
    const isComplete = members.length >= members[0]!.request.groupSize && members.every(one => one.ended !== null)
    if (!isComplete || this.closed.has(group)) return
    const rewarded = members
      .filter(one => one.reward !== null && one.ended!.outcome !== 'failed')
      .map(one => one.request.member)
    rewarded.sort((a, b) => a - b)
    const at = this.options.fx.now()
    // Marked before the fact is durable, so that a reward which arrives meanwhile is refused: `rewarded` lacks it.
    this.closed.add(group)
    try {
      await this.write([{ type: 'group.closed', at, group, epoch: this.epoch(), reason: 'complete', rewarded }])
    } catch (thrown) {
      this.closed.delete(group)
      throw thrown
    }
  }

  /** Forgets an ended session: its path and its keys are unknown from now on. */
  forget({ id, request: { group, member } }: SessionState): void {
    this.byId.delete(id)
    const members = this.inGroup.get(group)
    members?.delete(member)
    if (members?.size === 0) this.inGroup.delete(group)
    for (const [digest, one] of this.byKey) if (one.id === id) this.byKey.delete(digest)
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

  /** Calls `listener` with each fact that changes a session, of all sessions, until the returned function is called. */
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
    if (fact.type === 'group.closed') this.closed.add(fact.group)
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
    this.options.openBound?.note(fact)
    if (applyFact(session, fact, this.options)) for (const listener of this.listeners) listener(fact)
  }

  private epoch(): Epoch {
    return this.options.epochs[0]!
  }

  /** Reserves the trajectory id and the number of a session that is about to be opened, so that no other gets them. */
  private reserve(request: RolloutRequested): void {
    this.requests.set(request.trajectory, request)
    this.order = Math.max(this.order, request.order + 1)
    const number = /^agent\.(\d+)$/.exec(request.group)?.[1]
    if (number !== undefined) this.groups = Math.max(this.groups, Number(number) + 1)
  }

  /** Appends the facts of an opening. If that fails, the session's id is free again for the client's next try. */
  private async writeOpening(facts: readonly Fact[], { trajectory }: RolloutRequested): Promise<void> {
    try {
      await this.write(facts)
    } catch (thrown) {
      this.requests.delete(trajectory)
      throw thrown
    }
  }

  private requestFor({
    group: named,
    slot,
    groupSize = 1,
    task = {},
    policy = 'train',
  }: OpenRequest): RolloutRequested {
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
        message: `slot ${member} of group ${group} has a session already: give that session's id to open it again, or another slot`,
      })
    if (member >= groupSize && slot !== undefined)
      throw invalid(`slot ${member} is not below the group's size, ${groupSize}`, 'slot')
    const place = { group, member, groupSize: Math.max(groupSize, member + 1), order: this.order }
    return rolloutRequest(place, { task, policy }, this.options)
  }
}
