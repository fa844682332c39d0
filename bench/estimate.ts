/**
 * Compares the dry run's estimate of the trainer's memory and time with measured steps: four sizes of model, float32
 * and bfloat16, LoRA, checkpointing, 1, 2 and 4 gloo ranks, on the CPU.
 *
 * Each measurement runs in processes of its own. A step whose memory is measured has two micro-batches on each rank;
 * bytes are those of tensors (policy/measure), and the process's own growth is measured once. Time is processor time:
 * one step calibrates each configuration and four other batches are predicted (support/timedSteps.ts). `--only 135M,1M`
 * runs some of the sizes, `--only "10M LoRA float32"` some configurations; `time` or `memory` among them runs that half
 * alone.
 */
import { atLeast, atMost, type BenchReport, type Budget, describeMachine, printReport } from './report'
import { commandSeconds } from './support/commandSeconds'
import { type MeasuredStep, measuredStep, models, type StepConfiguration } from './support/measuredStep'
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
  { ranks: 4, dtype: 'bfloat16' },
  { ranks: 4, loraRank: 8 },
]

interface Row {
  readonly name: string
  readonly variant: string
  readonly step?: MeasuredStep
  readonly times?: TimedSteps
}

const halves = ['memory', 'time'] as const

export async function bench({ only = [] }: { readonly only?: readonly string[] } = {}): Promise<BenchReport> {
  const chosen = only.filter(word => !(halves as readonly string[]).includes(word))
  const [memory, time] = halves.map(half => only.includes(half) || !halves.some(other => only.includes(other)))
  const rows: Row[] = []
  for (const size of Object.keys(models) as (keyof typeof models)[]) {
    for (const variant of variants) {
      const name = nameOf({ size, ...variant })
      if (chosen.length > 0 && !chosen.includes(size) && !chosen.includes(name)) continue
      // Fewer tokens, since a machine of two cores computes the micro-batches of all ranks.
      const tokens = size !== '1M' && variant.ranks !== undefined ? 256 : 512
      const resident = size === '135M' && name.endsWith('float32')
      const step = memory ? await measuredStep({ ...{ size, tokens, resident }, ...variant }) : undefined
      if (step !== undefined) process.stderr.write(`${lineOf(name, step)}\n`)
      const { tokens: timed, rounds } = timing[size]
      const times = time ? await timedSteps({ size, ...variant }, timed, rounds) : undefined
      if (times !== undefined) process.stderr.write(`${timeLineOf(name, times)}\n`)
      rows.push({ name, variant: name.slice(size.length), ...(step && { step }), ...(times && { times }) })
    }
  }
  const estimateOnly = commandSeconds(['train', 'rstar2', '--dry-run', '--estimate-only'])
  return {
    bench: 'estimate',
    machine: describeMachine(),
    metrics: {
      ...Object.fromEntries(rows.flatMap(row => [...memoryMetrics(row), ...timeMetrics(row, rows)])),
      'dry run with --estimate-only, CPU seconds': estimateOnly.cpu,
    },
    budgets: [
      atMost('dry run with --estimate-only, seconds', estimateOnly.wall, 3),
      ...rows.flatMap(({ name, step, times }) => [
        ...(step === undefined ? [] : within(`${name}: estimate over measured`, step.ratio, tolerance)),
        ...(times?.predicted ?? []).flatMap(one =>
          within(`${name}: time of ${one.name}, estimate over measured`, one.ratio, timeTolerance),
        ),
      ]),
    ],
  }
}

const within = (name: string, ratio: number, share: number): readonly Budget[] => [
  atLeast(name, ratio, 1 - share),
  atMost(name, ratio, 1 + share),
]

function memoryMetrics({ name, step }: Row): readonly (readonly [string, number])[] {
  if (step === undefined) return []
  const { residentBytes } = step
  return [
    [`${name}: measured peak, MB`, step.measured.total / 1e6],
    ...(residentBytes === undefined ? [] : [[`${name}: growth of the process, MB`, residentBytes / 1e6] as const]),
  ]
}

function timeMetrics({ name, variant, times }: Row, rows: readonly Row[]): readonly (readonly [string, number])[] {
  if (times === undefined) return []
  const smallest = rows.find(row => row.variant === variant)!.times!
  return [
    ...times.predicted.map(one => [`${name}: ${one.name}, CPU seconds`, one.seconds] as const),
    [`${name}: rates of the smallest model, estimate over measured`, carriedRatio(times, smallest.rates)],
  ]
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
const timeLineOf = (name: string, { predicted }: TimedSteps): string =>
  `${name}: time ${predicted.map(({ name, seconds, ratio }) => `${name} ${seconds.toFixed(3)} s ${ratio.toFixed(2)}`).join(', ')}`

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
