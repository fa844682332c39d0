/**
 * The queue of calls that no zygote (warm interpreter that forks a child for each call) has yet, and the choice of the
 * next call and its zygote.
 *
 * in   new calls, calls to be repeated, aborted calls
 * out  the next call and a zygote that takes it, while there is one
 * Invariant: cells whose zygote can take them come first, then calls whose zygote failed before they began, then the
 * others. Among the others clients take turns, and the calls of one are first come, first served, as are cells of the same
 * zygote. A call for which there is no memory holds up those behind it. A zygote never has more calls than it can run at
 * once (LANES).
 */
import type { Job } from './job'
import type { ZygoteLink } from './link'

type Link = ZygoteLink<Job>

/**
 * Upper bound on the calls sent to a zygote that have not begun: the zygote never waits for this process between two
 * calls.
 */
const AHEAD = 8
/** Upper bound on the calls that a zygote runs at once: LANES in shim/state.h. */
const LANES = 60

/** Upper bound on further calls sent ahead, of clients that run nothing: they pass those that wait in the zygote. */
const URGENT_AHEAD = 8

const takes = (link: Link, urgent = false) =>
  link.ready && link.notBegun < AHEAD + (urgent ? URGENT_AHEAD : 0) && link.calls.size < LANES

export class WaitingJobs {
  readonly #again: Job[] = []
  /**
   * Waiting calls that any zygote can run, by client, in the order of turns; a client that was served goes to the end. No
   * set is empty. A Set keeps the order and deletes an aborted call at once.
   */
  readonly #queue = new Map<string, Set<Job>>()
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
    if (!link) {
      const jobs = this.#queue.get(job.client)
      if (jobs) jobs.add(job)
      else this.#queue.set(job.client, new Set([job]))
      this.#queued++
      return
    }
    if (!this.#bound.has(link)) this.#bound.set(link, new Set())
    this.#bound.get(link)?.add(job)
  }

  /**
   * Adds a call again whose zygote failed before the code began; it goes ahead of the other calls that any zygote can
   * run.
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
   * goes to the zygote with the fewest calls.
   * @param isUrgent true for a call that may be sent beyond AHEAD
   * @param admit takes the call's memory from the budget; returns false if there is none, and then no call begins now
   */
  next(
    links: readonly Link[],
    isUrgent: (job: Job) => boolean,
    admit: (job: Job) => boolean,
  ): { readonly job: Job; readonly link: Link } | undefined {
    for (const [link, jobs] of this.#bound) {
      const [job] = jobs
      if (!job || !takes(link)) continue
      if (!admit(job)) return undefined
      jobs.delete(job)
      return { job, link }
    }
    const job = this.#again[0] ?? this.#turn(isUrgent)
    if (!job) return undefined
    const urgent = isUrgent(job)
    let link: Link | undefined
    for (const other of links) {
      if (takes(other, urgent) && (!link || other.calls.size < link.calls.size)) link = other
    }
    if (!link || !admit(job)) return undefined
    if (job === this.#again[0]) this.#again.shift()
    else this.#serve(job)
    return { job, link }
  }

  /** Returns the call whose turn it is: of the first client with an urgent call, else of the first client. */
  #turn(isUrgent: (job: Job) => boolean): Job | undefined {
    let first: Job | undefined
    for (const jobs of this.#queue.values()) {
      const [job] = jobs
      if (job && isUrgent(job)) return job
      first ??= job
      // Only named clients can be urgent; where there is one client, as in most uses, the first call decides.
      if (!job?.named && this.#queue.size === 1) break
    }
    return first
  }

  /** Removes a call, and puts its client behind the others. */
  #serve(job: Job): void {
    this.#unqueue(job)
    const rest = this.#queue.get(job.client)
    if (!rest) return
    this.#queue.delete(job.client)
    this.#queue.set(job.client, rest)
  }

  #unqueue(job: Job): void {
    const jobs = this.#queue.get(job.client)
    if (!jobs?.delete(job)) return
    this.#queued--
    if (jobs.size === 0) this.#queue.delete(job.client)
  }

  /** Removes and returns the cells that need the state of a zygote that died. */
  takeBound(link: Link): Iterable<Job> {
    const jobs = this.#bound.get(link) ?? []
    this.#bound.delete(link)
    return jobs
  }

  /** Removes and returns the calls that any zygote could run. */
  takeUnbound(): readonly Job[] {
    const jobs = [...this.#again, ...[...this.#queue.values()].flatMap(queued => [...queued])]
    this.#again.length = 0
    this.#queue.clear()
    this.#queued = 0
    return jobs
  }

  takeAll(): readonly Job[] {
    return [...this.takeUnbound(), ...[...this.#bound.keys()].flatMap(link => [...this.takeBound(link)])]
  }
}
