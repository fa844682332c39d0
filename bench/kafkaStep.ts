/**
 * Measures how much longer a training step takes on Kafka than on lmdb (bench/support/stepRace.ts), and how long the
 * start of a run on Kafka takes.
 *
 * The benchmark starts one broker, on the same two cores. The start counts from an open broker until the first prompts
 * are drawn and rendered: topics, claims of partitions, the model's weights, engine, trainer and renderer.
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
