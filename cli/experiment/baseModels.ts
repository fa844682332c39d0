/**
 * Experiment base-models: trains other model architectures than the quickstart's through the whole system.
 *
 * Data, sizes and numbers are the quickstart's; only the model's config names another family. transformers builds the
 * model, and the local engine and the trainer run it.
 */
import { armData, armRuns, armSeconds, figureOf, passAt1After, passAt1Before, trainArms } from './arms'
import { accuracyPicture } from './curves'
import type { Experiment } from './experiment'
import { shown } from './report'
import type { TrainedRun } from './trainedRun'

// `what` is printed in the report's column 'what it has'; there, 'the same' in the second row means the parts of the
// first.
const architectures = [
  { arm: 'llama', config: {}, what: 'RMSNorm, SwiGLU, rotary positions (the quickstart)' },
  { arm: 'qwen3', config: { model_type: 'qwen3', head_dim: 24 }, what: 'the same with normalised queries and keys' },
  {
    arm: 'gpt_neox',
    config: { model_type: 'gpt_neox', rotary_pct: 0.5, use_parallel_residual: true, hidden_act: 'gelu' },
    what: 'LayerNorm, GELU, attention and MLP in parallel, half of each head rotated',
  },
] as const

export const baseModels: Experiment = async options => {
  const runs = await trainArms(architectures, options, ({ config }, seed) => ({
    extends: 'quickstart',
    seed,
    model: { config },
  }))
  const of = (arm: string, figure: (run: TrainedRun) => number | null) => figureOf(runs, arm, figure)
  return {
    name: 'base-models',
    title: 'Other architectures',
    question: 'The paper trains Qwen3-14B and Qwen2.5-32B. Does any part of the system depend on the architecture?',
    method: [
      `The quickstart with three architectures of the same width and depth, random weights, ${options.seeds} seeds; learning rates are the llama's, and not tuned for the others.`,
    ],
    findings: ['The same engine, trainer and recipe run all three: only the config of the model differs.'],
    tables: [
      {
        title: `Mean over ${options.seeds} seeds`,
        columns: [
          'architecture',
          'what it has',
          'pass@1 before',
          'pass@1 after',
          'failed calls in positives, last step',
          'seconds',
        ],
        rows: architectures.map(({ arm, what }) => [
          arm,
          what,
          shown(of(arm, passAt1Before)),
          shown(of(arm, passAt1After)),
          shown(of(arm, run => run.steps.at(-1)!.toolErrorRateInPositives)),
          shown(
            of(arm, run => run.summary.wallSeconds),
            0,
          ),
        ]),
      },
    ],
    pictures: [accuracyPicture(armRuns(runs))],
    runSeconds: armSeconds(runs),
    data: armData(runs),
  }
}
