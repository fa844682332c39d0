/**
 * Experiment environment-throughput: measures the sandbox by itself with 45,000 calls, as many as a step of the paper
 * makes (arXiv 2508.20722 §3.1, Fig. 6).
 *
 * It measures the calls per second that the machine can answer, then about 45,000 calls that arrive independently at 70
 * % of that rate, then 45,000 calls at once. In each of the last two, every call prints another number, so a swapped
 * answer is noticed.
 */
import { quantile } from '../../kernels'
import { openSandbox } from '../../sandbox'
import type { Experiment } from './experiment'
import { openLoad } from './openLoad'

const calls = 45_000
const load = 0.7
const saturationSeconds = 8
const atATime = 64

export const environmentThroughput: Experiment = async ({ say }) => {
  const sandbox = await openSandbox({ queueLimit: calls })
  const run = async (index: number): Promise<boolean> => {
    const { status, stdout } = await sandbox.run({ id: `${index}`, code: `print(${index} * 2 + 1)`, timeoutMs: 4000 })
    return status === 'ok' && Buffer.from(stdout).toString() === `${index * 2 + 1}\n`
  }
  try {
    const perSecond = await saturation(run)
    say(`${perSecond.toFixed(0)} calls a second at most; now ${calls} at ${load} of that`)
    let right = 0
    const seconds = calls / (load * perSecond)
    const latencies = await openLoad({ perSecond: load * perSecond, seconds, seed: 1 }, async index => {
      if (await run(index)) right++
    })
    const mean = latencies.reduce((sum, ms) => sum + ms, 0) / latencies.length
    say(`mean ${mean.toFixed(1)} ms; now ${calls} at once`)
    const began = performance.now()
    const answers = await Promise.all(Array.from({ length: calls }, (_, index) => run(index)))
    const burstSeconds = (performance.now() - began) / 1000
    const burstRight = answers.filter(Boolean).length
    const at = (q: number) => `${quantile(latencies, q).toFixed(1)} ms`
    return {
      name: 'environment-throughput',
      title: 'Tool calls: throughput and latency',
      question:
        'The paper runs up to 45,000 tool calls a step with 0.3 s on average from request to result, on the CPU cores of 64 GPU servers. What do the same number of calls take here?',
      method: [
        `The sandbox by itself (\`troupe/sandbox\`), level ${sandbox.level}, ${sandbox.lanes} lanes; every call a fresh, isolated child.`,
        `First, ${atATime} calls at a time for ${saturationSeconds} s give the saturation rate. Then calls arrive as a Poisson process at ${load * 100} % of this rate until ${calls} have come; latency counts from the time when a call was due.`,
        `Last, ${calls} calls queued at once.`,
      ],
      findings: [
        `Mean latency ${mean.toFixed(1)} ms at ${load * 100} % load (target: below 500 ms); ${right} of ${latencies.length} answers right.`,
        `${calls} at once took ${burstSeconds.toFixed(1)} s, ${burstRight} right: latency is then mostly the wait in the queue.`,
        "The paper's figure includes the network and a master that schedules over many nodes; this one does not.",
      ],
      tables: [
        {
          title: `Latency at ${load * 100} % of ${perSecond.toFixed(0)} calls a second`,
          columns: ['mean', 'p50', 'p90', 'p99', 'max'],
          rows: [[`${mean.toFixed(1)} ms`, at(0.5), at(0.9), at(0.99), at(1)]],
        },
      ],
      pictures: [
        {
          name: 'latency',
          caption: `Latency of ${latencies.length} calls that arrived independently at ${load * 100} % of the saturation rate (logarithmic).`,
          spec: {
            data: { values: histogram(latencies) },
            width: 460,
            height: 240,
            mark: 'bar',
            encoding: {
              x: { field: 'from', type: 'quantitative', scale: { type: 'log' }, title: 'ms' },
              x2: { field: 'to' },
              y: { field: 'calls', type: 'quantitative', title: 'calls' },
            },
          },
        },
      ],
      data: {
        ...{ perSecond, calls, right, meanMs: mean, burstSeconds, burstRight },
        quantilesMs: Object.fromEntries([0.5, 0.9, 0.99, 1].map(q => [q, quantile(latencies, q)])),
        histogram: histogram(latencies),
      },
    }
  } finally {
    await sandbox.close()
  }
}

async function saturation(run: (index: number) => Promise<boolean>): Promise<number> {
  let answered = 0
  const began = performance.now()
  const isOver = () => performance.now() - began > saturationSeconds * 1000
  const client = async () => {
    while (!isOver()) if (await run(answered)) answered++
  }
  await Promise.all(Array.from({ length: atATime }, client))
  return answered / ((performance.now() - began) / 1000)
}

/** Counts latencies in a histogram of ten bins per decade. */
export function histogram(latenciesMs: readonly number[]): { from: number; to: number; calls: number }[] {
  const bins = new Map<number, number>()
  for (const ms of latenciesMs) {
    const bin = Math.floor(10 * Math.log10(Math.max(ms, 0.01)))
    bins.set(bin, (bins.get(bin) ?? 0) + 1)
  }
  return [...bins]
    .sort(([a], [b]) => a - b)
    .map(([bin, count]) => ({ from: 10 ** (bin / 10), to: 10 ** ((bin + 1) / 10), calls: count }))
}
