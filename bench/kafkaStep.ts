/**
 * What Kafka costs a training step over lmdb (bench/support/stepRace.ts), and how long a run on it takes to begin.
 *
 * One broker that this starts, on the same two cores. The start counts from an open broker until the first prompts are
 * drawn and rendered: topics, claims, the model's weights, engine, trainer and renderer.
 */
import { startKafka } from '../tests/support/kafka'
import { atMost, type BenchReport, describeMachine, printReport } from './report'
import { race, rolloutsPerStep } from './support/stepRace'

export async function bench(): Promise<BenchReport> {
  const kafka = await startKafka()
  try {
    const { first, second, medianRatio, steps } = await race(
      { name: 'lmdb', bus: 'lmdb:' },
      { name: 'kafka', bus: kafka.address },
    )
    return {
      bench: 'kafkaStep',
      machine: describeMachine(),
      metrics: {
        kafkaStepSeconds: second.stepSeconds,
        lmdbStepSeconds: first.stepSeconds,
        kafkaNodeCpuMs: second.nodeCpuMs,
        lmdbNodeCpuMs: first.nodeCpuMs,
        meanRatio: second.stepSeconds / first.stepSeconds,
        lmdbStartSeconds: first.startSeconds,
        ...{ steps, rolloutsPerStep },
      },
      budgets: [
        atMost('step on Kafka, times a step on lmdb', medianRatio, 1.15),
        atMost('start to the first prompts, seconds', second.startSeconds, 10),
      ],
    }
  } finally {
    await kafka.stop()
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
