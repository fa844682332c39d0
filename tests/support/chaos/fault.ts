/**
 * Interface of a fault that a chaos run injects, such as killing an engine or filling a disk.
 *
 * Invariant: when `strike` resolves, the fault is undone (a stopped process runs again, a full disk has room), or its
 * victim is dead and will be replaced. The effect follows from the random numbers that `strike` draws.
 */
import type { Random } from '../../../kernels/random'

export interface Fault {
  /** Name under which the fault is counted and printed, such as `kill engine`. */
  readonly name: string
  /** Relative frequency of this fault: the schedule draws faults in proportion to their weights. */
  readonly weight: number
  /** Injects the fault. Resolves with a description of it; undefined if there was no victim. */
  strike(random: Random): Promise<string | undefined>
}

/** A kind of fault that cannot be injected on this machine, and the reason. */
export interface LeftOut {
  readonly kind: string
  readonly why: string
}
