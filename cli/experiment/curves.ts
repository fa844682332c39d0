/**
 * Computes learning curves of arms (variants of a recipe) that were run with several seeds: points, and a picture of
 * them.
 *
 * in   steps of runs by arm and seed         out  the mean over seeds at each step, with its standard error as a band
 */
import type { TopLevelSpec } from 'vega-lite' with { 'resolution-mode': 'import' }
import type { StepReport } from '../../replay/learning/progress'
import { meanAndError, type Picture } from './report'

export interface ArmRun {
  readonly arm: string
  readonly seed: number
  readonly steps: readonly StepReport[]
}

export interface CurvePoint {
  readonly arm: string
  readonly step: number
  readonly mean: number
  readonly low: number
  readonly high: number
}

/**
 * Points of each arm's curve, one for each step at which all runs of the arm have a value: elsewhere the mean would be
 * over fewer seeds.
 */
export function curve(runs: readonly ArmRun[], figure: (step: StepReport) => number | null): CurvePoint[] {
  const arms = [...new Set(runs.map(run => run.arm))]
  return arms.flatMap(arm => {
    const own = runs.filter(run => run.arm === arm)
    const length = Math.min(...own.map(run => run.steps.length))
    return Array.from({ length }, (_, at) => at).flatMap(at => {
      const values = own.map(run => figure(run.steps[at]!)).filter(value => value !== null)
      if (values.length < own.length) return []
      const { mean, error } = meanAndError(values)
      const spread = Number.isFinite(error) ? error : 0
      return [{ arm, step: own[0]!.steps[at]!.step, mean, low: mean - spread, high: mean + spread }]
    })
  })
}

/** Makes the picture of one metric over the steps, with a curve for each arm. */
export function curvePicture(
  runs: readonly ArmRun[],
  { name, caption, title }: { readonly name: string; readonly caption: string; readonly title: string },
  figure: (step: StepReport) => number | null,
): Picture {
  return { name, caption, spec: spec(curve(runs, figure), title) }
}

export const accuracyPicture = (runs: readonly ArmRun[]): Picture =>
  curvePicture(
    runs,
    { name: 'accuracy', caption: 'Mean reward of all rollouts of a step.', title: 'pass@1 in training' },
    step => step.passAt1,
  )

function spec(points: readonly CurvePoint[], title: string): TopLevelSpec {
  const x = { field: 'step', type: 'quantitative' as const, title: 'step' }
  const color = { field: 'arm', type: 'nominal' as const, title: null }
  return {
    data: { values: points as unknown as Record<string, unknown>[] },
    width: 460,
    height: 260,
    layer: [
      {
        mark: { type: 'area', opacity: 0.2 },
        encoding: { x, color, y: { field: 'low', type: 'quantitative', title }, y2: { field: 'high' } },
      },
      { mark: 'line', encoding: { x, color, y: { field: 'mean', type: 'quantitative', title } } },
    ],
  }
}
