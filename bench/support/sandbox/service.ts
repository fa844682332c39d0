/**
 * Measures the judge as a service: a burst, latency under load, the effect of spinning calls on others, calls that need
 * their CPU time.
 *
 * in   a judge over the sandbox, by HTTP      out  measurements, and the budgets that they are compared with
 */
import { availableParallelism } from 'node:os'
import { openLoad } from '../../../cli/experiment/openLoad'
import { quantile } from '../../../kernels'
import { atLeast, atMost } from '../../report'
import { processTree, pssBytes } from '../processTree'
import { type JudgeClient, postBatch, type Result, startJudge } from './judgeClient'
import { workloads } from './programs'
import type { Part } from './rates'

const BURST = 45_000
const BATCH = 64
const MIB = 1024 * 1024
/** Duration in seconds of each of the loads that are compared with each other. */
const SECONDS = 12
const SEED = 7

interface Status {
  readonly queue: number
  readonly level: string
  readonly queue_wait: { readonly p50: number; readonly p99: number }
}

async function withJudge(interpreter: string, measure: (judge: JudgeClient) => Promise<Part>): Promise<Part> {
  const judge = await startJudge({ kind: 'sandbox', options: { python: interpreter } })
  try {
    return await measure(judge)
  } finally {
    await judge.close()
  }
}

/** Posts 45,000 calls at once in batches of 64, while a second client sends one call after the other. */
export const burst = (interpreter: string) =>
  withJudge(interpreter, async judge => {
    const memory = watchMemory(judge.process.pid!)
    const start = performance.now()
    let open = true
    const batches = Array.from({ length: Math.ceil(BURST / BATCH) }, (_, k) => {
      const size = Math.min(BATCH, BURST - k * BATCH)
      return postBatch(judge, workloads.trivial, k * BATCH, size).then(() => size)
    })
    const others: number[] = []
    const other = async () => {
      while (open) {
        const asked = performance.now()
        await single(judge, 'print("other")')
        others.push(performance.now() - asked)
      }
    }
    const otherEnds = other()
    const answered = (await Promise.all(batches)).reduce((sum, size) => sum + size, 0)
    const seconds = (performance.now() - start) / 1000
    open = false
    await otherEnds
    const { peakMiB, restMiB } = await memory.stop()
    return {
      metrics: {
        'burst.answeredRight': answered,
        'burst.seconds': seconds,
        'burst.callsPerSecond': answered / seconds,
        'burst.peakMemoryMiB': peakMiB,
        'burst.memoryBeforeMiB': restMiB,
        'burst.otherClientCalls': others.length,
        'burst.otherClientP50Ms': quantile(others, 0.5),
        'burst.otherClientMaxMs': Math.max(...others),
      },
      budgets: [
        atLeast('burst of 45,000: answered right', answered, BURST),
        atMost('burst of 45,000: seconds', seconds, 60),
        atMost('burst of 45,000: longest wait of another client, ms', Math.max(...others), 5000),
        atMost('burst of 45,000: peak memory, MiB', peakMiB, 1024),
      ],
    }
  })

/**
 * Measures the latency of single trivial calls at 70 % of the rate at which 32 senders of single calls saturate the
 * judge.
 */
export const latency = async (interpreter: string): Promise<Part> => {
  const most = (await withJudge(interpreter, saturation)).metrics['latency.saturationPerSecond']!
  return withJudge(interpreter, async judge => {
    const idle: number[] = []
    for (let i = 0; i < 100; i++) {
      const asked = performance.now()
      await single(judge, 'print(1)')
      idle.push(performance.now() - asked)
    }
    const load = { perSecond: 0.7 * most, seconds: SECONDS, seed: SEED }
    const latencies = await openLoad(load, () => single(judge, 'print(1)').then(() => undefined))
    const { queue_wait } = await judge.get<Status>('/status')
    const p50 = quantile(latencies, 0.5)
    const p99 = quantile(latencies, 0.99)
    return {
      metrics: {
        'latency.saturationPerSecond': most,
        'latency.idleP50Ms': quantile(idle, 0.5),
        'latency.calls': latencies.length,
        'latency.p50Ms': p50,
        'latency.p99Ms': p99,
        'latency.queueWaitP50Ms': queue_wait.p50 * 1000,
        'latency.queueWaitP99Ms': queue_wait.p99 * 1000,
      },
      budgets: [atMost('latency at 70 % load: p50, ms', p50, 5), atMost('latency at 70 % load: p99, ms', p99, 50)],
    }
  })
}

/**
 * Measures the latency of calls that end, with and without 5 % of calls beside them that spin to their limit and take a
 * quarter of the CPU time.
 */
export const spinners = async (interpreter: string): Promise<Part> => {
  const limitMs = 500
  const perSecond = (0.25 * availableParallelism()) / (0.05 * (limitMs / 1000))
  const options = { python: interpreter }
  const judge = await startJudge({ kind: 'sandbox', options, timeoutMs: limitMs })
  try {
    const load = { perSecond, seconds: SECONDS, seed: SEED }
    let wrong = 0
    const measure = async (withSpinners: boolean) => {
      const latencies = await openLoad(load, async index => {
        const spins = withSpinners && index % 20 === 0
        const { reason } = await judge.post<Result>('/run', python(spins ? 'while True: pass' : 'print(1)'))
        if ((reason === 'worker_timeout') !== spins) wrong++
      })
      return latencies.filter((_, index) => index % 20 !== 0) // leaves out the calls that may spin
    }
    const without = await measure(false)
    const withThem = await measure(true)
    const ratio = (q: number) => quantile(withThem, q) / quantile(without, q)
    return {
      metrics: {
        'spinners.callsPerSecond': perSecond,
        'spinners.wronglyEnded': wrong,
        'spinners.withoutP50Ms': quantile(without, 0.5),
        'spinners.withoutP99Ms': quantile(without, 0.99),
        'spinners.withP50Ms': quantile(withThem, 0.5),
        'spinners.withP99Ms': quantile(withThem, 0.99),
      },
      budgets: [
        atMost('5 % spinners: calls that ended otherwise than they should', wrong, 0),
        atMost('5 % spinners: p50 of the others, times that without', ratio(0.5), 2),
        atMost('5 % spinners: p99 of the others, times that without', ratio(0.99), 2),
      ],
    }
  } finally {
    await judge.close()
  }
}

/** Runs calls that need a CPU-second each under a limit of 4 s, at a rate that takes half of the CPU time. */
export const starvation = (interpreter: string) =>
  withJudge(interpreter, async judge => {
    const program = 'import time\nwhile time.process_time() < 1.0: pass\nprint("done")'
    const costs: number[] = []
    const load = { perSecond: availableParallelism() / 2, seconds: 2 * SECONDS, seed: SEED }
    let ended = 0
    await openLoad(load, async () => {
      const { cost, stdout } = await judge.post<Result>('/run', python(program))
      costs.push(cost)
      if (stdout === 'done\n') ended++
    })
    return {
      metrics: { 'starvation.calls': costs.length, 'starvation.longestSeconds': Math.max(...costs) },
      budgets: [atLeast('half load of CPU-second calls under 4 s: share that ended ok', ended / costs.length, 1)],
    }
  })

const python = (solution: string) => ({ type: 'python', solution })

async function single(judge: JudgeClient, code: string): Promise<Result> {
  const result = await judge.post<Result>('/run', python(code))
  if (!result.run_success)
    throw new Error(`a call of the judge failed: reason '${result.reason}', stderr ${result.stderr}`)
  return result
}

/**
 * Rate of single calls with 32 in flight. It is measured on a separate judge, to keep its queue waits out of the
 * load's.
 */
async function saturation(judge: JudgeClient): Promise<Part> {
  const start = performance.now()
  let calls = 0
  const sender = async () => {
    for (; performance.now() - start < 4000; calls++) await single(judge, 'print(1)')
  }
  await Promise.all(Array.from({ length: 32 }, sender))
  const perSecond = (1000 * calls) / (performance.now() - start)
  return { metrics: { 'latency.saturationPerSecond': perSecond }, budgets: [] }
}

/** Watches the memory of the judge and all its descendants, in MiB; a page that several processes share counts once. */
function watchMemory(pid: number) {
  const now = () => processTree(pid).reduce((sum, use) => sum + pssBytes(use.pid), 0) / MIB
  const restMiB = now()
  let peakMiB = restMiB
  const timer = setInterval(() => {
    peakMiB = Math.max(peakMiB, now())
  }, 1000)
  return {
    async stop() {
      clearInterval(timer)
      return { restMiB, peakMiB: Math.max(peakMiB, now()) }
    },
  }
}
