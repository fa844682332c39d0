/**
 * Compares the dry run's estimate of the trainer's memory with measured steps: four sizes of model, float32 and bfloat16, LoRA,
 * checkpointing, 1, 2 and 4 gloo ranks, on the CPU.
 *
 * Each configuration runs in processes of its own; a step has two micro-batches on each rank. Memory is counted in bytes of
 * tensors (policy/measure); the process's own growth is measured once. `--only 135M,1M` runs some of the sizes.
 */
import { atLeast, atMost, type BenchReport, describeMachine, printReport } from './report'
import { type MeasuredStep, measuredStep, models, type StepConfiguration } from './support/measuredStep'

const tolerance = 0.1
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
  const rows: { readonly name: string; readonly step: MeasuredStep }[] = []
  for (const size of Object.keys(models) as (keyof typeof models)[]) {
    if (only !== undefined && !only.includes(size)) continue
    for (const variant of variants) {
      const name = nameOf({ size, ...variant })
      // Four processes with 135M parameters and fewer tokens stay within 6 GB.
      const tokens = size === '135M' && variant.ranks !== undefined ? 256 : 512
      const step = await measuredStep({
        size,
        tokens,
        resident: size === '135M' && name.endsWith('float32'),
        ...variant,
      })
      process.stderr.write(`${lineOf(name, step)}\n`)
      rows.push({ name, step })
    }
  }
  const metrics = rows.flatMap(({ name, step }): (readonly [string, number])[] => [
    [`${name}: measured peak, MB`, step.measured.total / 1e6],
    [`${name}: estimate over measured`, step.ratio],
    ...(step.residentBytes === undefined
      ? []
      : [[`${name}: growth of the process, MB`, step.residentBytes / 1e6] as const]),
  ])
  return {
    bench: 'estimate',
    machine: describeMachine(),
    metrics: Object.fromEntries(metrics),
    budgets: rows.flatMap(({ name, step }) => [
      atLeast(`${name}: estimate over measured`, step.ratio, 1 - tolerance),
      atMost(`${name}: estimate over measured`, step.ratio, 1 + tolerance),
    ]),
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

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
