/** What a chaos run is given, on any bus. */
export interface ChaosOptions {
  readonly run: string
  readonly seed: number
  /** Of the train command of a learner. */
  readonly settings: readonly string[]
  /** No more faults after this; the run then ends undisturbed. 0: none at all. */
  readonly faultsForMs: number
  /** Between two faults, ms, on average. */
  readonly everyMs: number
  /** From the last fault to the run's end, ms. */
  readonly endWithinMs: number
  /** Size of the disk of the run's directory. */
  readonly diskMegabytes: number
  readonly say?: (text: string) => void
}

/** Milliseconds after a disk has had room again in which a process may still end because it was full. */
export const diskGraceMs = 30_000
