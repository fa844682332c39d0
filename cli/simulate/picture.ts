/**
 * Draws the policies on one load side by side: the makespan with its lower bound, and the recomputed tokens relative to
 * the generated ones.
 */
import type { TopLevelSpec } from 'vega-lite' with { 'resolution-mode': 'import' }
import type { LowerBound, SimulationResult } from '../../kernels'

export function pictureOf(results: readonly SimulationResult[], bound: LowerBound): TopLevelSpec {
  const bars = (figures: (result: SimulationResult) => number, title: string, rule?: number): object => {
    const x = { field: 'policy', type: 'nominal', title: null, sort: null, axis: { labelAngle: 0 } }
    const bar = { mark: 'bar', encoding: { x, y: { field: 'value', type: 'quantitative', title } } }
    const line = { mark: { type: 'rule', strokeDash: [4, 3] }, encoding: { y: { datum: rule, type: 'quantitative' } } }
    return {
      data: { values: results.map(result => ({ policy: result.policy, value: figures(result) })) },
      ...{ width: 300, height: 220, layer: rule === undefined ? [bar] : [bar, line] },
    }
  }
  return {
    hconcat: [
      bars(({ makespanMs }) => makespanMs / 1000, 'makespan, s (dashed: lower bound)', bound.ms / 1000),
      bars(
        ({ recomputedTokens, generatedTokens }) => recomputedTokens / generatedTokens,
        'recomputed over generated tokens',
      ),
    ],
  } as TopLevelSpec
}
