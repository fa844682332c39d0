/** What an experiment is given, and what it gives back. */
import type { ExperimentReport } from './report'

export interface ExperimentOptions {
  /** How many seeds; where an experiment has arms, each runs with all of them. */
  readonly seeds: number
  /** Where logs of its runs go, and where runs that are there already are taken from. */
  readonly directory: string
  readonly say: (line: string) => void
}

export type Experiment = (options: ExperimentOptions) => Promise<ExperimentReport>
