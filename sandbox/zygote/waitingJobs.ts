/**
 * The calls that no zygote has yet, and which of them goes next to which zygote.
 *
 * in   calls that come, come again, or are given up        out  the next call and its zygote, while there is one that takes more
 * Invariant: first come, first served, but that calls of a zygote that died before it began them come before the others,
 * and a session's cell waits for the zygote that has its state. A zygote never holds more than it has lanes.
 */
import type { Job } from './job'
import type { ZygoteLink } from './link'

type Link = ZygoteLink<Job>

/** Calls that a zygote holds ready, so that it never waits for this process between two. */
const AHEAD = 8
/** Of one zygote: the lanes of shim.c. */
const LANES = 60

const takes = (link: Link) => link.ready && link.unbegun < AHEAD && link.calls.size < LANES

export class WaitingJobs {
  readonly #again: Job[] = []
  /** A Set keeps the order and forgets an aborted call at once. */
  readonly #queue = new Set<Job>()
  /** Cells whose state is with one zygote. */
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

  /** It was with a zygote that did not begin it. */
  addAgain(job: Job): void {
    this.#again.push(job)
  }

  forget(job: Job): void {
    const again = this.#again.indexOf(job)
    if (again >= 0) this.#again.splice(again, 1)
    this.#queue.delete(job)
    if (job.place?.link) this.#bound.get(job.place.link)?.delete(job)
  }

  /** Takes the next call out. Where its state is with no zygote it goes to the one with the fewest calls. */
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

  /** Cells whose state was with a zygote that is gone. */
  takeBound(link: Link): Iterable<Job> {
    const jobs = this.#bound.get(link) ?? []
    this.#bound.delete(link)
    return jobs
  }

  /** Those that any zygote could have. */
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
