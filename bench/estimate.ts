/**
 * Compares the dry run's estimate of the trainer's memory with measured steps: four sizes of model, float32 and bfloat16, LoRA,
 * checkpointing, 1, 2 and 4 gloo ranks, on the CPU.
 *
 * Each configuration runs in processes of its own; a step has two micro-batches on each rank. Memory is counted in bytes of
 * tensors (policy/measure); the process's own growth is measured once. Time is processor time; one step calibrates each
 * configuration and four other batches are predicted (support/timedSteps.ts). `--only 135M,1M` runs some of the sizes.
 */
import { atLeast, atMost, type BenchReport, describeMachine, printReport } from './report'
import { commandSeconds } from './support/commandSeconds'
import { type MeasuredStep, models, type StepConfiguration } from './support/measuredStep'
import { carriedRatio, type TimedSteps, timedSteps } from './support/timedSteps'

const tolerance = 0.1
const timeTolerance = 0.25
/** Tokens of a timed micro-batch, and rounds of which the least time counts: small steps are noisier and cost less. */
const timing = {
  '1M': { tokens: 512, rounds: 12 },
  '10M': { tokens: 256, rounds: 5 },
  '40M': { tokens: 256, rounds: 3 },
  '135M': { tokens: 128, rounds: 2 },
} as const
const variants: readonly Omit<StepConfiguration, 'size'>[] = [
  {},
  { checkpointing: true },
  { loraRank: 8 },
  { dtype: 'bfloat16' },
  { dtype: 'bfloat16', checkpointing: true },
  { dtype: 'bfloat16', loraRank: 8 },
  { ranks: 2 },
  { ranks: 2, dtype: 'bfloat16' },
  { ranks: 2, dtype: 'bfloat16', checkpointing: true },
  { ranks: 2, loraRank: 8 },
  { ranks: 4 },
]

export async function bench({ only }: { readonly only?: readonly string[] } = {}): Promise<BenchReport> {
  const rows: {
    readonly name: string
    readonly variant: string
    readonly step: MeasuredStep
    readonly times: TimedSteps
  }[] = []
  for (const size of Object.keys(models) as (keyof typeof models)[]) {
    if (only !== undefined && !only.includes(size)) continue
    for (const variant of variants) {
      const name = nameOf({ size, ...variant })
      // Four processes with 135M parameters and fewer tokens stay within 6 GB.
      const tokens = size === '135M' && variant.ranks !== undefined ? 256 : 512
      const { tokens: timed, rounds } = timing[size]
      const resident = size === '135M' && name.endsWith('float32')
      const times = await timedSteps({ ...{ size, tokens, rounds, resident }, ...variant }, timed)
      const { step } = times
      process.stderr.write(`${lineOf(name, step)}\n${timeLineOf(times)}\n`)
      rows.push({ name, variant: nameOf({ size, ...variant }).slice(size.length), step, times })
    }
  }
  const estimateOnly = commandSeconds(['train', 'rstar2', '--dry-run', '--estimate-only'])
  const metrics = rows.flatMap(({ name, variant, step, times }): (readonly [string, number])[] => [
    [`${name}: measured peak, MB`, step.measured.total / 1e6],
    [`${name}: estimate over measured`, step.ratio],
    ...(step.residentBytes === undefined
      ? []
      : [[`${name}: growth of the process, MB`, step.residentBytes / 1e6] as const]),
    ...times.predicted.map(one => [`${name}: ${one.name}, CPU seconds`, one.seconds] as const),
    [
      `${name}: rates of the smallest model, estimate over measured`,
      carriedRatio(times, rows.find(row => row.variant === variant)!.times.rates),
    ],
  ])
  return {
    bench: 'estimate',
    machine: describeMachine(),
    metrics: { ...Object.fromEntries(metrics), 'dry run with --estimate-only, CPU seconds': estimateOnly.cpu },
    budgets: [
      atMost('dry run with --estimate-only, seconds', estimateOnly.wall, 3),
      ...rows.flatMap(({ name, step, times }) => [
        atLeast(`${name}: estimate over measured`, step.ratio, 1 - tolerance),
        atMost(`${name}: estimate over measured`, step.ratio, 1 + tolerance),
        ...times.predicted.flatMap(one => [
          atLeast(`${name}: time of ${one.name}, estimate over measured`, one.ratio, 1 - timeTolerance),
          atMost(`${name}: time of ${one.name}, estimate over measured`, one.ratio, 1 + timeTolerance),
        ]),
      ]),
    ],
  }
}

function nameOf({ size, dtype = 'float32', checkpointing, loraRank, ranks = 1 }: StepConfiguration): string {
  const parts = [size, ...(ranks > 1 ? [`${ranks} ranks`] : []), ...(loraRank === undefined ? [] : ['LoRA'])]
  return [...parts, ...(checkpointing ? ['checkpointing'] : []), dtype].join(' ')
}

/** One row: estimated and measured megabytes of each category. */
function lineOf(name: string, { estimated: e, measured: m, ratio }: MeasuredStep): string {
  const pair = (what: string, one: number, other: number) =>
    `${what} ${(one / 1e6).toFixed(1)}/${(other / 1e6).toFixed(1)}`
  const pairs = [
    pair('weights', e.weights, m.weights),
    pair('gradients', e.gradients, m.gradients),
    pair('moments', e.optimizer, m.optimizer),
    pair('activations', e.activations, m.activations),
    pair('working set', e.working + e.gathered, m.working),
  ]
  return `${name}: ${pairs.join(', ')}; ratio ${ratio.toFixed(3)} (${e.moment})`
}

/** Measured seconds and the ratio of each predicted batch. */
const timeLineOf = ({ predicted }: TimedSteps): string =>
  `  time: ${predicted.map(({ name, seconds, ratio }) => `${name} ${seconds.toFixed(3)} s ${ratio.toFixed(2)}`).join(', ')}`

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
