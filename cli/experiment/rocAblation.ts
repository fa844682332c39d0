/**
 * Experiment roc-ablation: compares GRPO-RoC with GRPO, with the same tool and from one cold start (arXiv 2508.20722
 * §5.3, Fig. 4 and 9), on the quickstart.
 *
 * Both arms sample 16 rollouts of a problem and train on 8. RoC selects the 8 by quality, GRPO uniformly. The two runs
 * of a pair have the same seed, cold start, problems and budget.
 */
import { join } from 'node:path'
import { percent } from '../io/terminal'
import { armRuns, armSeconds, figureOf, passAt1After, passAt1Before, type TrainedArm } from './arms'
import { accuracyPicture, curvePicture } from './curves'
import type { Experiment, ExperimentOptions } from './experiment'
import { type ExperimentReport, meanAndError, shown } from './report'
import { type TrainedRun, trainedRun } from './trainedRun'

const arms = [
  { arm: 'GRPO-RoC', variant: 'paper' },
  { arm: 'GRPO', variant: 'none' },
] as const

async function pairOf(seed: number, { directory }: ExperimentOptions): Promise<readonly TrainedArm[]> {
  const begun = await trainedRun(
    `seed${seed}-cold-start`,
    { extends: 'quickstart', seed, train: { steps: 0 }, evaluation: { problems: 0 } },
    directory,
  )
  const model = { from: 'directory', path: join(begun.directory, 'checkpoints/step-000000') }
  const runs: TrainedArm[] = []
  for (const { arm, variant } of arms) {
    const recipe = { extends: 'quickstart', seed, coldStart: null, model, selection: { variant } }
    runs.push({ arm, seed, run: await trainedRun(`seed${seed}-${variant}`, recipe, directory) })
  }
  return runs
}

/** Mean of a figure over those steps of a run's last quarter that have the figure; null if none of them has it. */
const late = (run: TrainedRun, figure: (step: TrainedRun['steps'][number]) => number | null): number | null => {
  const tail = run.steps.slice(-Math.max(1, Math.ceil(run.steps.length / 4)))
  const values = tail.map(figure).filter(value => value !== null)
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length
}

const figures: readonly (readonly [string, (run: TrainedRun) => number | null])[] = [
  ['pass@1 on 256 problems, before', passAt1Before],
  ['pass@1 on 256 problems, after', passAt1After],
  ['failed calls in positives, first step', run => run.steps[0]!.toolErrorRateInPositives],
  ['failed calls in positives, last quarter', run => late(run, step => step.toolErrorRateInPositives)],
  ['failed calls in all rollouts, last quarter', run => late(run, step => step.toolErrorRate)],
  ['sampled tokens a rollout, last quarter', run => late(run, step => step.meanTokens)],
]

export const rocAblation: Experiment = async options => {
  const pairs: (readonly TrainedArm[])[] = []
  for (let seed = 1; seed <= options.seeds; seed++) {
    pairs.push(await pairOf(seed, options))
    options.say(`seed ${seed}: both arms are done`)
  }
  const runs = pairs.flat()
  const rows = figures.map(([name, figure]) => {
    const [roc = [], grpo = []] = arms.map(({ arm }) => figureOf(runs, arm, figure))
    const paired = roc.map((value, at) => (value === null || grpo[at] == null ? null : value - grpo[at]))
    return [name, shown(roc), shown(grpo), shown(paired)]
  })
  const errors = (arm: string) => {
    const rates = figureOf(runs, arm, figures[3]![1]).filter(rate => rate !== null)
    return percent(rates.length === 0 ? null : meanAndError(rates).mean)
  }
  const report: ExperimentReport = {
    name: 'roc-ablation',
    title: 'GRPO-RoC against GRPO, both with the tool',
    question:
      'Does resampling on correct reduce the failed calls in rewarded rollouts, which plain GRPO with the same tool keeps (paper §2.2.3, Fig. 4), and does accuracy fall or rise (Fig. 9)?',
    method: [
      `The quickstart's model and problems, ${options.seeds} seeds; both arms of a seed begin from one cold start and see the same problems.`,
      'Each step samples 16 rollouts of 24 problems. GRPO-RoC keeps 8 of a group by quality, GRPO 8 of them uniformly: the same number of rollouts and of trained sequences.',
      'Bands and ± are one standard error over seeds; the difference is that of pairs.',
    ],
    findings: [
      `In the last quarter of the steps ${errors('GRPO-RoC')} of the calls in positives failed with RoC, ${errors('GRPO')} without.`,
      'The model has under a million parameters and solves arithmetic: the direction of the differences can be compared with those of the paper, their size cannot.',
    ],
    tables: [
      { title: `Mean over ${options.seeds} seeds`, columns: ['', 'GRPO-RoC', 'GRPO', 'difference, paired'], rows },
    ],
    pictures: [
      curvePicture(
        armRuns(runs),
        {
          name: 'tool-errors',
          caption: 'Failed calls over calls, in rollouts with a positive reward.',
          title: 'tool errors in positives',
        },
        step => step.toolErrorRateInPositives,
      ),
      accuracyPicture(armRuns(runs)),
    ],
    runSeconds: armSeconds(runs),
    data: pairs.map(pair => ({
      seed: pair[0]!.seed,
      arms: Object.fromEntries(pair.map(({ arm, run: { steps, summary } }) => [arm, { steps, summary }])),
    })),
  }
  return report
}
