/** Contract of an experiment: its options in, its report out. */
import type { ExperimentReport } from './report'

export interface ExperimentOptions {
  /** Number of seeds; each arm runs with all of them. */
  readonly seeds: number
  /** Directory for the logs of its runs. A run that is already there is used again. */
  readonly directory: string
  /** Prints a line of progress. */
  readonly say: (line: string) => void
}

export type Experiment = (options: ExperimentOptions) => Promise<ExperimentReport>
