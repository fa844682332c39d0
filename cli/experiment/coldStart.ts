/**
 * A cold start on format alone against one that imitates reasoning (arXiv 2508.20722 §4.1), on the quickstart.
 *
 * Both arms imitate the same calls and answers; one of them thinks aloud before each. Then the same reinforcement learning.
 */
import { type ArmRun, curve, curvePicture } from './curves'
import type { Experiment } from './experiment'
import { shown } from './report'
import { type TrainedRun, trainedRun } from './trainedRun'

const arms = [
  { arm: 'non-reasoning', reasoning: false },
  { arm: 'reasoning-heavy', reasoning: true },
] as const

/** Room for what is written aloud; the same for both. */
const room = {
  model: { config: { max_position_embeddings: 768 } },
  engine: { kvTokens: 131_072 },
  limits: { contextTokens: 768, responseTokens: 640 },
}

export const coldStart: Experiment = async ({ seeds, directory, say }) => {
  const runs: { readonly arm: string; readonly seed: number; readonly run: TrainedRun }[] = []
  for (let seed = 1; seed <= seeds; seed++) {
    for (const { arm, reasoning } of arms) {
      const recipe = { extends: 'quickstart', seed, data: { reasoning }, ...room }
      runs.push({ arm, seed, run: await trainedRun(`seed${seed}-${arm}`, recipe, directory) })
    }
    say(`seed ${seed}: both arms are there`)
  }
  const of = (arm: string, figure: (run: TrainedRun) => number) =>
    runs.filter(one => one.arm === arm).map(one => figure(one.run))
  const reach = ({ steps }: TrainedRun) => steps.find(step => step.passAt1 >= 0.9)?.step ?? Number.NaN
  const figures: readonly (readonly [string, (run: TrainedRun) => number])[] = [
    ['pass@1 before', run => run.summary.evalBefore?.passAt1 ?? Number.NaN],
    ['pass@1 after', run => run.summary.evalAfter?.passAt1 ?? Number.NaN],
    ['sampled tokens a rollout, first step', run => run.steps[0]!.meanTokens],
    ['sampled tokens a rollout, last step', run => run.steps.at(-1)!.meanTokens],
    ['seconds of the whole run', run => run.summary.wallSeconds],
  ]
  const armRuns: ArmRun[] = runs.map(({ arm, seed, run }) => ({ arm, seed, steps: run.steps }))
  const reached = arms.map(({ arm }) => {
    const at = of(arm, reach)
    const there = at.filter(Number.isFinite)
    return `${there.length} of ${at.length}${there.length === 0 ? '' : `, after ${shown(there, 1)} steps`}`
  })
  return {
    name: 'cold-start',
    title: 'Cold start: format alone, or reasoning too',
    question:
      'The paper begins with a fine-tuning that teaches format and tool use but no reasoning, so that responses begin short and grow by reinforcement learning alone. What does a reasoning-heavy beginning change in length and convergence?',
    method: [
      `The quickstart's model and problems, ${seeds} seeds. Both arms imitate the same calls and answers; the reasoning-heavy one has a sentence or two of thought before each.`,
      'Bands and ± are one standard error over seeds.',
    ],
    findings: [
      `Mean reward of a step at 0.9 or above: non-reasoning ${reached[0]}; reasoning-heavy ${reached[1]}.`,
      'The thoughts are templates that a model of under a million parameters can learn; they are no chain of reasoning that could help it, so this shows their cost and not their worth.',
    ],
    tables: [
      {
        title: `Mean over ${seeds} seeds`,
        columns: ['', ...arms.map(({ arm }) => arm)],
        rows: figures.map(([name, figure]) => [
          name,
          ...arms.map(({ arm }) => shown(of(arm, figure), name.includes('pass') ? 3 : 1)),
        ]),
      },
    ],
    pictures: [
      {
        name: 'length',
        caption: 'Tokens that a rollout samples, mean of a step.',
        spec: curvePicture(
          curve(armRuns, step => step.meanTokens),
          'sampled tokens',
        ),
      },
      {
        name: 'accuracy',
        caption: 'Mean reward of all rollouts of a step.',
        spec: curvePicture(
          curve(armRuns, step => step.passAt1),
          'pass@1 in training',
        ),
      },
    ],
    data: runs.map(({ arm, seed, run: { steps, summary } }) => ({ arm, seed, steps, summary })),
  }
}
