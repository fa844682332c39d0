/**
 * Trains the arms of an experiment: each arm (variant) with every seed.
 *
 * in   the arms, and the recipe of each        out  their runs; figures, curves and data of the runs
 */
import type { ArmRun } from './curves'
import type { ExperimentOptions } from './experiment'
import { type TrainedRun, trainedRun } from './trainedRun'

export interface TrainedArm {
  readonly arm: string
  readonly seed: number
  readonly run: TrainedRun
}

export async function trainArms<A extends { readonly arm: string }>(
  arms: readonly A[],
  { seeds, directory, say }: ExperimentOptions,
  recipeOf: (arm: A, seed: number) => object,
): Promise<readonly TrainedArm[]> {
  const runs: TrainedArm[] = []
  for (let seed = 1; seed <= seeds; seed++) {
    for (const one of arms) {
      const { arm } = one
      runs.push({ arm, seed, run: await trainedRun(`seed${seed}-${arm}`, recipeOf(one, seed), directory) })
      say(`seed ${seed}: ${arm} is done`)
    }
  }
  return runs
}

/** Returns the value of a metric (`figure`) in each run of one arm, in the order of the seeds. */
export const figureOf = <T extends number | null>(
  runs: readonly TrainedArm[],
  arm: string,
  figure: (run: TrainedRun) => T,
): T[] => runs.filter(one => one.arm === arm).map(one => figure(one.run))

export const armRuns = (runs: readonly TrainedArm[]): ArmRun[] =>
  runs.map(({ arm, seed, run }) => ({ arm, seed, steps: run.steps }))

export const armSeconds = (runs: readonly TrainedArm[]): number =>
  runs.reduce((sum, { run }) => sum + run.summary.wallSeconds, 0)

export const armData = (runs: readonly TrainedArm[]) =>
  runs.map(({ arm, seed, run: { steps, summary } }) => ({ arm, seed, steps, summary }))

export const passAt1Before = (run: TrainedRun): number => run.summary.evalBefore?.passAt1 ?? Number.NaN
export const passAt1After = (run: TrainedRun): number => run.summary.evalAfter?.passAt1 ?? Number.NaN
