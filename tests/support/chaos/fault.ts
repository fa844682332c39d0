/**
 * One kind of fault of a chaos run: what it is done to, how it is done, how it is undone.
 *
 * Invariant: when `strike` resolves, its fault is undone (a stopped process goes on, a full disk has room), or its victim
 * is gone and will be replaced. What it does follows from the numbers that it draws.
 */
import type { Random } from '../../../kernels/random'

export interface Fault {
  /** As it is counted and printed: `kill engine`. */
  readonly name: string
  /** Share of this fault among all, in any unit. */
  readonly weight: number
  /** Resolves with a description of what was done; with undefined if there was nothing to do it to. */
  strike(random: Random): Promise<string | undefined>
}

/** A kind of fault that cannot be done on this machine, and why. */
export interface LeftOut {
  readonly kind: string
  readonly why: string
}
