/** Contract of an experiment: it takes options and returns a report. */
import type { ExperimentReport } from './report'

export interface ExperimentOptions {
  /** Number of seeds; each arm (variant) runs once with each seed. Experiments without training ignore it. */
  readonly seeds: number
  /**
   * Directory for the logs of the experiment's runs. A run that finished there with the same recipe is not repeated; an
   * interrupted run is resumed.
   */
  readonly directory: string
  /** Prints a line of progress. */
  readonly say: (line: string) => void
}

export type Experiment = (options: ExperimentOptions) => Promise<ExperimentReport>
