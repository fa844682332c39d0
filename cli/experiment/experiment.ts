/** Contract of an experiment: it takes options and returns a report. */
import type { ExperimentReport } from './report'

export interface ExperimentOptions {
  /** Number of seeds; each arm runs once with each. */
  readonly seeds: number
  /** Directory for the logs of the experiment's runs. A run whose log is already there is not repeated. */
  readonly directory: string
  /** Prints a line of progress. */
  readonly say: (line: string) => void
}

export type Experiment = (options: ExperimentOptions) => Promise<ExperimentReport>
