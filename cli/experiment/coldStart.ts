/**
 * Experiment cold-start: compares a cold start (supervised fine-tuning before reinforcement learning) that teaches only
 * the format with one that also imitates reasoning (arXiv 2508.20722 §4.1), on the quickstart.
 *
 * Both arms imitate the same calls and answers; the arm reasoning-heavy writes a thought before each call and answer.
 * Reinforcement learning is the same.
 */
import { armData, armRuns, armSeconds, figureOf, passAt1After, passAt1Before, trainArms } from './arms'
import { accuracyPicture, curvePicture } from './curves'
import type { Experiment } from './experiment'
import { shown } from './report'
import type { TrainedRun } from './trainedRun'

const arms = [
  { arm: 'non-reasoning', reasoning: false },
  { arm: 'reasoning-heavy', reasoning: true },
] as const

/** Limits with room for the written thoughts, the same for both arms. */
const room = {
  model: { config: { max_position_embeddings: 768 } },
  engine: { kvTokens: 131_072 },
  limits: { contextTokens: 768, responseTokens: 640 },
}

export const coldStart: Experiment = async options => {
  const runs = await trainArms(arms, options, ({ reasoning }, seed) => ({
    extends: 'quickstart',
    seed,
    data: { reasoning },
    ...room,
  }))
  const of = (arm: string, figure: (run: TrainedRun) => number) => figureOf(runs, arm, figure)
  const reach = ({ steps }: TrainedRun) => steps.find(step => step.passAt1 >= 0.9)?.step ?? Number.NaN
  const figures: readonly (readonly [string, (run: TrainedRun) => number])[] = [
    ['pass@1 before', passAt1Before],
    ['pass@1 after', passAt1After],
    ['sampled tokens a rollout, first step', run => run.steps[0]!.meanTokens],
    ['sampled tokens a rollout, last step', run => run.steps.at(-1)!.meanTokens],
    ['seconds of the whole run', run => run.summary.wallSeconds],
  ]
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
      `The quickstart's model and problems, ${options.seeds} seeds. Both arms imitate the same calls and answers; the reasoning-heavy one has a sentence or two of thought before each.`,
      'Bands and ± are one standard error over seeds.',
    ],
    findings: [
      `Mean reward of a step at 0.9 or above: non-reasoning ${reached[0]}; reasoning-heavy ${reached[1]}.`,
      'The thoughts are templates that a model of under a million parameters can learn; they are no reasoning that could help it, so this shows only their cost, no benefit.',
    ],
    tables: [
      {
        title: `Mean over ${options.seeds} seeds`,
        columns: ['', ...arms.map(({ arm }) => arm)],
        rows: figures.map(([name, figure]) => [
          name,
          ...arms.map(({ arm }) => shown(of(arm, figure), name.includes('pass') ? 3 : 1)),
        ]),
      },
    ],
    pictures: [
      curvePicture(
        armRuns(runs),
        { name: 'length', caption: 'Tokens that a rollout samples, mean of a step.', title: 'sampled tokens' },
        step => step.meanTokens,
      ),
      accuracyPicture(armRuns(runs)),
    ],
    runSeconds: armSeconds(runs),
    data: armData(runs),
  }
}
