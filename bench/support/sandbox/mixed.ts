/**
 * Measures a mixed load: 40 % trivial calls, 40 % like rStar2's (`wrapper` of programs.ts), 5 % numpy, 10 % errors, 5 %
 * that spin to their limit of 4 s; beside the same load with trivial calls in their place, and beside workers with a
 * fresh process for each call.
 *
 * in   a judge in its default configuration, by HTTP      out  rates, and the budgets that they are compared with
 * Two shapes with 512 calls in flight: 8 batches of 64, where a batch is answered after its slowest call; and 512 calls
 * on their own. Every batch has three spinners or four, so 8 batches cannot do more than `BATCH_BOUND`, 128 calls/s.
 */
import { STANDARD_PRELOAD } from '../../../sandbox/options'
import { atLeast, atMost } from '../../report'
import { type JudgeClient, type Result, startJudge } from './judgeClient'
import { codeOf, workloads } from './programs'
import type { Part } from './rates'

const LIMIT_MS = 4000
/** Time until the first calls have reached their limit, and time that is measured after that, in ms. */
const WARM_MS = 5000
const MEASURED_MS = 18_000
const FRESH_LANES = 24
const BATCH_BOUND = (8 * 64) / (LIMIT_MS / 1000)
const ERROR = 'def f(n):\n    return [1, 2][n]\nf({n} + 2)'

type Answered = (result: Result) => boolean

/** Returns the nth program of the load, and what its answer must be. */
function callOf(n: number, spinners: boolean): { readonly solution: string; readonly isRight: Answered } {
  const at = (7 * n) % 20 // so that calls of one kind do not follow one another
  if (at === 0 && spinners)
    return { solution: 'while True: pass', isRight: ({ reason }) => reason === 'worker_timeout' }
  if (at < 3 && at > 0) {
    return { solution: ERROR.replace('{n}', String(n)), isRight: ({ stderr }) => stderr.includes('IndexError') }
  }
  const workload = at === 3 ? workloads.numpy : at < 12 ? workloads.trivial : workloads.wrapper
  return { solution: codeOf(workload, n), isRight: ({ stdout }) => stdout === workload.prints(n) }
}

interface Load {
  readonly senders: number
  readonly batch: number
  readonly spinners: boolean
}

interface Measured {
  readonly perSecond: number
  readonly wrong: number
}

/** Sends batches until the time is over. Counts the calls that are answered after WARM_MS. */
async function rateOf(judge: JudgeClient, { senders, batch, spinners }: Load): Promise<Measured> {
  const start = performance.now()
  const warmMs = spinners ? WARM_MS : WARM_MS / 5
  const endMs = warmMs + (spinners ? MEASURED_MS : MEASURED_MS / 3)
  let next = 0
  let answered = 0
  let wrong = 0
  const sender = async () => {
    while (performance.now() - start < endMs) {
      const calls = Array.from({ length: batch }, () => callOf(next++, spinners))
      const submissions = calls.map(({ solution }) => ({ type: 'python', solution }))
      const { results } = await judge.post<{ results: Result[] }>('/run/long-batch', { type: 'batch', submissions })
      const at = performance.now() - start
      if (at >= warmMs && at < endMs) answered += batch
      wrong += calls.filter(({ isRight }, n) => !isRight(results[n]!)).length
    }
  }
  await Promise.all(Array.from({ length: senders }, sender))
  return { perSecond: (1000 * answered) / (endMs - warmMs), wrong }
}

const BATCHES = { senders: 8, batch: 64 } as const
const SINGLE = { senders: 512, batch: 1 } as const

export async function mixedRates(python: string): Promise<Part> {
  const options = { python, preload: STANDARD_PRELOAD, lazyPreload: true }
  const fresh = await startJudge({ kind: 'fresh', workers: FRESH_LANES, python, timeoutMs: LIMIT_MS })
  const freshRate = await rateOf(fresh, { ...BATCHES, spinners: true }).finally(() => fresh.close())
  const judge = await startJudge({ kind: 'sandbox', options, timeoutMs: LIMIT_MS })
  try {
    const without = await rateOf(judge, { ...BATCHES, spinners: false })
    const batches = await rateOf(judge, { ...BATCHES, spinners: true })
    const single = await rateOf(judge, { ...SINGLE, spinners: true })
    const wrong = without.wrong + batches.wrong + single.wrong
    return {
      metrics: {
        'mixed.withoutSpinnersPerSecond': without.perSecond,
        'mixed.batchesPerSecond': batches.perSecond,
        'mixed.batchesBoundPerSecond': BATCH_BOUND,
        'mixed.singleCallsPerSecond': single.perSecond,
        'mixed.freshProcessesPerSecond': freshRate.perSecond,
        'mixed.batchesOverFreshProcesses': batches.perSecond / freshRate.perSecond,
        'mixed.wrong': wrong,
      },
      budgets: [
        atMost('mixed load: calls that were answered otherwise than they should', wrong, 0),
        atLeast(
          'mixed load, 512 single calls: share of the rate without spinners',
          single.perSecond / without.perSecond,
          0.6,
        ),
        atLeast(
          'mixed load, 512 single calls: times the fresh-process worker',
          single.perSecond / freshRate.perSecond,
          10,
        ),
        atLeast('mixed load, 8 batches of 64: share of their highest rate', batches.perSecond / BATCH_BOUND, 0.6),
      ],
    }
  } finally {
    await judge.close()
  }
}
