/**
 * The queue of calls that no zygote (warm interpreter that forks a child for each call) has yet, and the choice of the
 * next call and its zygote.
 *
 * in   new calls, calls to be repeated, aborted calls
 * out  the next call and a zygote that takes it, while there is one
 * Invariant: cells whose zygote can take them come first, then calls whose zygote failed before they began, then the
 * others. Calls of the last two kinds, and cells of the same zygote, are first come, first served. A zygote never has
 * more calls than it can run at once (LANES).
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

const takes = (link: Link) => link.ready && link.notBegun < AHEAD && link.calls.size < LANES

export class WaitingJobs {
  readonly #again: Job[] = []
  /** Waiting calls that any zygote can run. A Set keeps the order and deletes an aborted call at once. */
  readonly #queue = new Set<Job>()
  /** Waiting cells of sessions, by the zygote that has the state that they fork from. */
  readonly #bound = new Map<Link, Set<Job>>()

  get size(): number {
    let waiting = this.#queue.size + this.#again.length
    for (const jobs of this.#bound.values()) waiting += jobs.size
    return waiting
  }

  add(job: Job): void {
    const link = job.place?.link
    if (!link) {
      this.#queue.add(job)
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
    this.#queue.delete(job)
    if (job.place?.link) this.#bound.get(job.place.link)?.delete(job)
  }

  /**
   * Removes and returns the next call with its zygote; undefined if no zygote can take one. A call that needs no state
   * goes to the zygote with the fewest calls.
   */
  next(links: readonly Link[]): { readonly job: Job; readonly link: Link } | undefined {
    for (const [link, jobs] of this.#bound) {
      const [job] = jobs
      if (!job || !takes(link)) continue
      jobs.delete(job)
      return { job, link }
    }
    const job = this.#again[0] ?? this.#queue.values().next().value
    if (!job) return undefined
    let link: Link | undefined
    for (const other of links) {
      if (takes(other) && (!link || other.calls.size < link.calls.size)) link = other
    }
    if (!link) return undefined
    if (job === this.#again[0]) this.#again.shift()
    else this.#queue.delete(job)
    return { job, link }
  }

  /** Removes and returns the cells that need the state of a zygote that died. */
  takeBound(link: Link): Iterable<Job> {
    const jobs = this.#bound.get(link) ?? []
    this.#bound.delete(link)
    return jobs
  }

  /** Removes and returns the calls that any zygote could run. */
  takeUnbound(): readonly Job[] {
    const jobs = [...this.#again, ...this.#queue]
    this.#again.length = 0
    this.#queue.clear()
    return jobs
  }

  takeAll(): readonly Job[] {
    return [...this.takeUnbound(), ...[...this.#bound.keys()].flatMap(link => [...this.takeBound(link)])]
  }
}
