/**
 * Other architectures than the quickstart's: does the whole way work, and does it learn?
 *
 * The same data, sizes and numbers with a config of another family; transformers builds it, the local engine and the trainer run it.
 */
import { type ArmRun, curve, curvePicture } from './curves'
import type { Experiment } from './experiment'
import { shown } from './report'
import { type TrainedRun, trainedRun } from './trainedRun'

const architectures = [
  { arm: 'llama', config: {}, what: 'RMSNorm, SwiGLU, rotary positions (the quickstart)' },
  { arm: 'qwen3', config: { model_type: 'qwen3', head_dim: 24 }, what: 'the same with normalised queries and keys' },
  {
    arm: 'gpt_neox',
    config: { model_type: 'gpt_neox', rotary_pct: 0.5, use_parallel_residual: true, hidden_act: 'gelu' },
    what: 'LayerNorm, GELU, attention and MLP in parallel, half of each head rotated',
  },
] as const

export const baseModels: Experiment = async ({ seeds, directory, say }) => {
  const runs: { readonly arm: string; readonly seed: number; readonly run: TrainedRun }[] = []
  for (let seed = 1; seed <= seeds; seed++) {
    for (const { arm, config } of architectures) {
      const recipe = { extends: 'quickstart', seed, model: { config } }
      runs.push({ arm, seed, run: await trainedRun(`seed${seed}-${arm}`, recipe, directory) })
      say(`seed ${seed}: ${arm} is there`)
    }
  }
  const of = (arm: string, figure: (run: TrainedRun) => number) =>
    runs.filter(one => one.arm === arm).map(one => figure(one.run))
  const armRuns: ArmRun[] = runs.map(({ arm, seed, run }) => ({ arm, seed, steps: run.steps }))
  return {
    name: 'base-models',
    title: 'Other architectures',
    question: 'The paper trains Qwen3-14B and Qwen2.5-32B. Does anything of the system depend on the architecture?',
    method: [
      `The quickstart with three architectures of the same width and depth, random weights, ${seeds} seeds; learning rates are the llama's, and not tuned for the others.`,
    ],
    findings: ['The same engine, trainer and recipe run all three: nothing but the config of the model differs.'],
    tables: [
      {
        title: `Mean over ${seeds} seeds`,
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
          shown(of(arm, run => run.summary.evalBefore?.passAt1 ?? Number.NaN)),
          shown(of(arm, run => run.summary.evalAfter?.passAt1 ?? Number.NaN)),
          shown(of(arm, run => run.steps.at(-1)!.toolErrorRateInPositives)),
          shown(
            of(arm, run => run.summary.wallSeconds),
            0,
          ),
        ]),
      },
    ],
    pictures: [
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
