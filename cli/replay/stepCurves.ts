/**
 * Draws the curves of runs over their steps, one panel for each figure: rewards, failed calls, lengths, evaluation
 * scores.
 *
 * in   runs by name, with their steps and evaluations        out  a Vega-Lite specification with the data inside
 */
import type { TopLevelSpec } from 'vega-lite' with { 'resolution-mode': 'import' }
import type { Progress, StepReport } from '../../replay/learning/progress'

export interface NamedProgress {
  readonly name: string
  readonly progress: Progress
}

const panels: readonly (readonly [title: string, figure: (step: StepReport) => number | null])[] = [
  ['pass@1 of rollouts', step => step.passAt1],
  ['failed calls in positives', step => step.toolErrorRateInPositives],
  ['sampled tokens a rollout', step => step.meanTokens],
]
const size = { width: 460, height: 150 }
const x = { field: 'step', type: 'quantitative' as const, title: 'step' }
const color = { field: 'run', type: 'nominal' as const, title: null }

export function stepCurves(runs: readonly NamedProgress[]): TopLevelSpec {
  const lines = panels.map(([title, figure]) => ({
    ...size,
    data: {
      values: runs.flatMap(({ name, progress }) =>
        progress.steps
          .map(step => ({ run: name, step: step.step, value: figure(step) }))
          .filter(({ value }) => value !== null),
      ),
    },
    mark: { type: 'line' as const, point: true },
    encoding: { x, color, y: { field: 'value', type: 'quantitative' as const, title, scale: { zero: true } } },
  }))
  return { vconcat: [...lines, ...evaluationPanel(runs)] }
}

/** Panel of evaluation scores: points with their 95 % intervals, at the steps after which the run was evaluated. */
function evaluationPanel(runs: readonly NamedProgress[]) {
  const values = runs.flatMap(({ name, progress }) =>
    progress.evaluations
      .filter(({ n }) => n > 0)
      .map(({ step, passAt1, standardError }) => {
        const value = { run: name, step, value: passAt1 }
        if (standardError === null) return value
        const half = 1.96 * standardError
        return { ...value, low: Math.max(0, passAt1 - half), high: Math.min(1, passAt1 + half) }
      }),
  )
  if (values.length === 0) return []
  const title = 'pass@1 of evaluations, 95 %'
  const y = { type: 'quantitative' as const, title, scale: { zero: true } }
  return [
    {
      ...size,
      data: { values },
      layer: [
        { mark: 'rule' as const, encoding: { x, color, y: { field: 'low', ...y }, y2: { field: 'high' } } },
        {
          mark: { type: 'line' as const, point: true, strokeDash: [4, 4] },
          encoding: { x, color, y: { field: 'value', ...y } },
        },
      ],
    },
  ]
}
