/**
 * Checks that a replaced scheduler (the actor that assigns turns to engines) stops: it may not start a rollout that was
 * asked for after its replacement.
 *
 * in   scheduler.claimed, turn.asked, rollout.started of one partition, with their writers, in the log's order
 * out  violations
 * A scheduler's facts carry no epoch, and a scheduler that is being replaced may finish the requests from before the
 * later claim. If it starts a rollout that was first asked for after that claim, it went on although it was replaced. A
 * process that is elected again may act shortly before its own next claim; so a start is judged only when the next
 * claim, or the log's end, is known.
 */
import type { Writer } from './epochs'
import type { Violation } from './violation'

interface Claim {
  readonly offset: number
  readonly writer: string
  readonly place: string
}

interface Asked {
  readonly offset: number
  readonly place: string
}

export class Schedulers {
  private readonly claims: Claim[] = []
  /** First `turn.asked` of each rollout that has not started. */
  private readonly asked = new Map<string, Asked>()
  /**
   * Violations that are not final yet, by the process of the replaced scheduler. The next claim makes them final, but
   * drops those of the process that makes the claim.
   */
  private suspects = new Map<string, Violation[]>()
  private readonly found: Violation[] = []

  claimed(offset: number, writer: Writer, place: string): void {
    if (writer === undefined) return
    this.suspects.delete(writer)
    this.settle()
    this.claims.push({ offset, writer, place })
  }

  askedFor(trajectory: string, offset: number, place: string): void {
    if (!this.asked.has(trajectory)) this.asked.set(trajectory, { offset, place })
  }

  started(trajectory: string, writer: Writer, place: string): void {
    const asked = this.asked.get(trajectory)
    this.asked.delete(trajectory)
    if (writer === undefined || asked === undefined) return
    const own = this.claims.findLast(claim => claim.writer === writer)
    if (own === undefined) return
    const later = this.claims.find(({ offset }) => offset > own.offset)
    if (later === undefined || later.offset > asked.offset) return
    const message = `the scheduler of the process ${writer} started ${trajectory}, asked for at ${asked.place}, although the process ${later.writer} had replaced it at ${later.place}`
    const suspects = this.suspects.get(writer) ?? []
    suspects.push({ kind: 'two-schedulers', places: [later.place, asked.place, place], message })
    this.suspects.set(writer, suspects)
  }

  /** Forgets a rollout that ended without a start. */
  ended(trajectory: string): void {
    this.asked.delete(trajectory)
  }

  violations(): readonly Violation[] {
    this.settle()
    return this.found
  }

  private settle(): void {
    for (const suspects of this.suspects.values()) this.found.push(...suspects)
    this.suspects = new Map()
  }
}
