/** Options of a chaos run (a run into which faults are injected), whatever its bus. */
export interface ChaosOptions {
  readonly run: string
  readonly seed: number
  /** Further arguments of `troupe train`; on Kafka they go to the learner alone. */
  readonly settings: readonly string[]
  /** Milliseconds for which faults are injected; afterwards the run ends undisturbed. 0: no faults. */
  readonly faultsForMs: number
  /** As in schedule.ts. */
  readonly leastFaults?: number
  /** Mean pause between two faults, ms. */
  readonly everyMs: number
  /** Upper bound on the time from the last fault to the run's end, ms. */
  readonly endWithinMs: number
  /** Size of the small disk that holds the run's directory, MiB. */
  readonly diskMegabytes: number
  /** Absolute path of a file that the run's log is exported to, whatever its end. Default: the log is not kept. */
  readonly keepIn?: string
  readonly say?: (text: string) => void
}

/** Milliseconds after a full disk got room again during which a process may still end with a disk-full error. */
export const diskGraceMs = 30_000
