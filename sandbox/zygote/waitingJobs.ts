/**
 * The queue of calls that no zygote (warm interpreter that forks a child for each call) has yet, and the choice of the
 * next call and its zygote.
 *
 * in   new calls, calls to be repeated, aborted calls
 * out  the next call and a zygote of its kind (the modules that it has imported) that takes it, while there is one
 * Invariant: cells whose zygote can take them come first, then repeated calls (which could not begin before), then the
 * others. Among the others urgent calls come first (of named clients that run nothing while another client runs many);
 * then clients take turns, and the calls of one client and one kind are first come, first served, as are cells of the
 * same zygote. Calls of a kind whose zygotes are all busy do not delay calls of another kind. A call for which there is
 * no memory delays those behind it. A zygote never has more calls than it can run at once (LANES).
 */
import type { Job } from './job'
import type { ZygoteLink } from './link'

type Link = ZygoteLink<Job>

/**
 * Upper bound on the calls sent to a zygote that have not begun. They are sent ahead, so that the zygote need not wait
 * for this process between two calls.
 */
const AHEAD = 8
/** Upper bound on the calls that a zygote runs at once: LANES in shim/state.h. */
const LANES = 60

/**
 * Upper bound on urgent calls sent beyond AHEAD (of named clients that run nothing while another floods): they begin
 * before the calls that wait in the zygote.
 */
const URGENT_AHEAD = 8

const takes = (link: Link, urgent = false) =>
  link.ready && link.notBegun < AHEAD + (urgent ? URGENT_AHEAD : 0) && link.calls.size < LANES

/**
 * Waiting calls of one kind by client, in the order of turns. No set is empty. A Set deletes an aborted call at once.
 */
type Turns = Map<string, Set<Job>>

interface Client {
  /** Turn number that the client got when it was last served, or when its first waiting call came if that was later. */
  turn: number
  waiting: number
}

export class WaitingJobs {
  readonly #again: Job[] = []
  /**
   * Waiting calls that any zygote of their kind can run, by kind. A served client goes to the end of each kind's queue.
   */
  readonly #queues = new Map<number, Turns>()
  readonly #clients = new Map<string, Client>()
  #turns = 0
  #queued = 0
  /** Waiting cells of sessions, by the zygote that has the state that they fork from. */
  readonly #bound = new Map<Link, Set<Job>>()

  get size(): number {
    let waiting = this.#queued + this.#again.length
    for (const jobs of this.#bound.values()) waiting += jobs.size
    return waiting
  }

  add(job: Job): void {
    const link = job.place?.link
    if (link) {
      if (!this.#bound.has(link)) this.#bound.set(link, new Set())
      this.#bound.get(link)?.add(job)
      return
    }
    const turns = this.#queues.get(job.kind) ?? new Map<string, Set<Job>>()
    this.#queues.set(job.kind, turns)
    const jobs = turns.get(job.client)
    if (jobs) jobs.add(job)
    else turns.set(job.client, new Set([job]))
    const client = this.#clients.get(job.client)
    if (client) client.waiting++
    else this.#clients.set(job.client, { turn: this.#turns++, waiting: 1 })
    this.#queued++
  }

  /**
   * Adds a call again that could not begin: its zygote died or could not fork. It goes ahead of the other calls that
   * any zygote can run.
   */
  addAgain(job: Job): void {
    this.#again.push(job)
  }

  forget(job: Job): void {
    const again = this.#again.indexOf(job)
    if (again >= 0) this.#again.splice(again, 1)
    this.#unqueue(job)
    if (job.place?.link) this.#bound.get(job.place.link)?.delete(job)
  }

  /**
   * Removes and returns the next call with its zygote; undefined if no zygote can take one. A call that needs no state
   * goes to the zygote of its kind on the core with the fewest calls.
   * @param isUrgent true for a call that may be sent beyond AHEAD
   * @param admit takes the call's memory from the budget; returns false if there is none, and then no call begins now
   * @param lacks called with each kind that has a waiting call and no zygote that is free: the call waits, or it goes
   * to a zygote that has calls already and shares that zygote's core with them
   */
  next(
    links: readonly Link[],
    isUrgent: (job: Job) => boolean,
    admit: (job: Job) => boolean,
    lacks: (kind: number) => void = () => undefined,
  ): { readonly job: Job; readonly link: Link } | undefined {
    for (const [link, jobs] of this.#bound) {
      const [job] = jobs
      if (!job || !takes(link)) continue
      if (!admit(job)) return undefined
      jobs.delete(job)
      return { job, link }
    }
    for (const job of this.#candidates(isUrgent)) {
      const link = freest(links, job, isUrgent(job))
      if (!link || link.calls.size > 0) lacks(job.kind)
      if (!link) continue
      if (!admit(job)) return undefined
      const again = this.#again.indexOf(job)
      if (again >= 0) this.#again.splice(again, 1)
      else this.#serve(job)
      return { job, link }
    }
    return undefined
  }

  /**
   * Lists at most two calls of each kind, in the order in which they should be tried: one that is repeated, and the one
   * whose turn it is.
   */
  #candidates(isUrgent: (job: Job) => boolean): readonly Job[] {
    const heads: Job[] = []
    for (const turns of this.#queues.values()) {
      const job = firstOf(turns, isUrgent)
      if (job) heads.push(job)
    }
    if (heads.length > 1) {
      const turnOf = (job: Job) => (isUrgent(job) ? -1 : (this.#clients.get(job.client)?.turn ?? 0))
      heads.sort((a, b) => turnOf(a) - turnOf(b) || a.queuedAt - b.queuedAt)
    }
    if (this.#again.length === 0) return heads
    return [...this.#again.filter((job, at, all) => all.findIndex(({ kind }) => kind === job.kind) === at), ...heads]
  }

  /** Removes a call, and puts its client behind the others. */
  #serve(job: Job): void {
    this.#unqueue(job)
    const client = this.#clients.get(job.client)
    if (!client) return
    client.turn = this.#turns++
    for (const turns of this.#queues.values()) {
      const rest = turns.get(job.client)
      if (!rest) continue
      turns.delete(job.client)
      turns.set(job.client, rest)
    }
  }

  #unqueue(job: Job): void {
    const turns = this.#queues.get(job.kind)
    const jobs = turns?.get(job.client)
    if (!turns || !jobs?.delete(job)) return
    this.#queued--
    if (jobs.size === 0) turns.delete(job.client)
    const client = this.#clients.get(job.client)
    if (client && --client.waiting === 0) this.#clients.delete(job.client)
  }

  /** Removes and returns the cells that need the state of a zygote that died. */
  takeBound(link: Link): Iterable<Job> {
    const jobs = this.#bound.get(link) ?? []
    this.#bound.delete(link)
    return jobs
  }

  /** Removes and returns the calls that any zygote of this kind could run. */
  takeKind(kind: number): readonly Job[] {
    const queued = [...(this.#queues.get(kind)?.values() ?? [])].flatMap(jobs => [...jobs])
    const jobs = [...this.#again.filter(job => job.kind === kind), ...queued]
    for (const job of jobs) this.forget(job)
    return jobs
  }

  takeAll(): readonly Job[] {
    const again = this.#again.splice(0)
    const queued = [...this.#queues.keys()].flatMap(kind => this.takeKind(kind))
    return [...again, ...queued, ...[...this.#bound.keys()].flatMap(link => [...this.takeBound(link)])]
  }
}

/** Returns the zygote of the call's kind that takes it, on the core with the fewest calls. */
function freest(links: readonly Link[], job: Job, urgent: boolean): Link | undefined {
  let best: Link | undefined
  for (const link of links) {
    if (link.kind !== job.kind || !takes(link, urgent)) continue
    if (!best || link.core.calls < best.core.calls) best = link
  }
  return best
}

/** Returns the call whose turn it is: of the first client with an urgent call, else of the first client. */
function firstOf(turns: Turns, isUrgent: (job: Job) => boolean): Job | undefined {
  let first: Job | undefined
  for (const jobs of turns.values()) {
    const [job] = jobs
    if (job && isUrgent(job)) return job
    first ??= job
    // Only named clients can be urgent; where there is one client, as in most uses, the first call decides.
    if (!job?.named && turns.size === 1) break
  }
  return first
}
