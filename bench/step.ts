/**
 * Measures how much longer a training step takes with a durable log: the same steps on `lmdb:` and on `memory:`
 * (bench/support/stepRace.ts).
 */
import { atMost, type BenchReport, describeMachine, printReport } from './report'
import { race, rolloutsPerStep } from './support/stepRace'

export async function bench(): Promise<BenchReport> {
  const { first, second, medianRatio, steps } = await race(
    { name: 'memory', bus: 'memory:' },
    { name: 'lmdb', bus: 'lmdb:' },
  )
  return {
    bench: 'step',
    machine: describeMachine(),
    metrics: {
      lmdbStepSeconds: second.stepSeconds,
      memoryStepSeconds: first.stepSeconds,
      lmdbNodeCpuMs: second.nodeCpuMs,
      memoryNodeCpuMs: first.nodeCpuMs,
      meanRatio: second.stepSeconds / first.stepSeconds,
      ...{ steps, rolloutsPerStep },
    },
    budgets: [atMost('step on lmdb, times a step on memory', medianRatio, 1.05)],
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
