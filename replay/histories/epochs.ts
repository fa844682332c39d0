/**
 * Checks the epochs of one kind of claim: of a partition's owner, of the learner, or of the curriculum.
 *
 * in   claims with their offsets, and facts that carry an epoch, each with the process that wrote it
 * out  epochs that no claim made; epochs under which a second process wrote
 * Invariant: an epoch is the offset of one claim, so only the process that made the claim may write under it. Earlier
 * versions wrote no learner claims and no writers: if no claim is known, or with `inOrder` before the first claim,
 * facts are not judged; facts without a writer are not compared. For several facts of one writer under one epoch, the
 * violation names the first.
 */
import type { Violation, ViolationKind } from './violation'

/** Process that wrote a record, as its header `writer` says; undefined in logs of earlier versions. */
export type Writer = string | undefined

interface Claim {
  readonly writer: Writer
  readonly place: string
}

interface Acts {
  readonly place: string
  readonly type: string
  count: number
}

export class Epochs {
  private readonly claims = new Map<number, Claim>()
  /** Facts that carry an epoch, by epoch and then by writer. */
  private readonly acts = new Map<number, Map<Writer, Acts>>()

  /**
   * @param what noun for the claim's holder in messages, such as `owner`
   * @param inOrder true if claims and facts are taken in the order of one partition; false if claims may come later
   */
  constructor(
    private readonly kind: ViolationKind,
    private readonly what: string,
    private readonly inOrder: boolean,
  ) {}

  claimed(epoch: number, writer: Writer, place: string): void {
    this.claims.set(epoch, { writer, place })
  }

  acted(epoch: number, writer: Writer, place: string, type: string): void {
    if (this.inOrder && this.claims.size === 0) return
    const byWriter = this.acts.get(epoch) ?? new Map<Writer, Acts>()
    this.acts.set(epoch, byWriter)
    const acts = byWriter.get(writer)
    if (acts === undefined) byWriter.set(writer, { place, type, count: 1 })
    else acts.count++
  }

  /** Lists the violations. Call it after all claims were given to `claimed`. */
  violations(): readonly Violation[] {
    const found: Violation[] = []
    for (const [epoch, byWriter] of this.acts) {
      const claim = this.claims.get(epoch)
      for (const [writer, { place, type, count }] of byWriter) {
        const more = count === 1 ? '' : `, and ${count - 1} more of its facts`
        if (claim === undefined) {
          if (this.claims.size === 0) continue
          const message = `${type} carries the epoch ${epoch}, which no ${this.what} claimed${more}`
          found.push({ kind: 'unknown-epoch', places: [place], message })
        } else if (writer !== undefined && claim.writer !== undefined && writer !== claim.writer) {
          const message = `${type} was written by the process ${writer}, but the ${this.what} of the epoch ${epoch} is the process ${claim.writer}, which claimed it at ${claim.place}${more}`
          found.push({ kind: this.kind, places: [claim.place, place], message })
        }
      }
    }
    return found
  }
}
