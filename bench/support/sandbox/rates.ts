/**
 * Measures the calls per second of workloads in several ways to run them, side by side: rounds of a few seconds in
 * turn, medians over rounds.
 *
 * in   a Python, a workload      out  rates and CPU time per call, on all cores unless a way is for one; budgets on
 * ratios
 */
import { availableParallelism } from 'node:os'
import { openSandbox, runBatch, type Sandbox, type SandboxOptions } from '../../../sandbox'
import { STANDARD_PRELOAD } from '../../../sandbox/options'
import type { ZygotePool } from '../../../sandbox/zygote/pool'
import { atLeast, type Budget, median } from '../../report'
import { type MemoryShape, memoryShape, openFloors, type Rate } from './floors'
import { batchRate, startJudge, treeCpuMs } from './judgeClient'
import { codeOf, type Workload, workloads } from './programs'

export interface Part {
  readonly metrics: Readonly<Record<string, number>>
  readonly budgets: readonly Budget[]
}

const ROUNDS = 3
const SECONDS = 2.5
const HTTP = { senders: 8, batch: 64, seconds: SECONDS }

type Ways = Readonly<Record<string, () => Promise<Rate>>>

/** Measures every way once per round, in turn, so that a slow moment of the machine affects all of them. */
async function measureTogether<W extends Ways>(ways: W): Promise<Record<keyof W, Rate>> {
  const rates = new Map<string, Rate[]>(Object.keys(ways).map(name => [name, []]))
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, measure] of Object.entries(ways)) rates.get(name)!.push(await measure())
  }
  const middle = (values: readonly Rate[], of: keyof Rate) => median(values.map(rate => rate[of]))
  return Object.fromEntries(
    [...rates].map(([name, values]) => [
      name,
      { perSecond: middle(values, 'perSecond'), cpuMs: middle(values, 'cpuMs') },
    ]),
  ) as Record<keyof W, Rate>
}

const times = (one: Rate, other: Rate): number => one.perSecond / other.perSecond

/** Names rates and CPU costs after the part: `trivial.judgeOverHttpPerSecond`, `trivial.judgeOverHttpCpuMs`. */
function rateMetrics(part: string, rates: Readonly<Record<string, Rate>>): Record<string, number> {
  const entries = Object.entries(rates)
  return Object.fromEntries([
    ...entries.map(([name, rate]) => [`${part}.${name}PerSecond`, rate.perSecond]),
    ...entries.map(([name, rate]) => [`${part}.${name}CpuMs`, rate.cpuMs]),
  ])
}

/** Returns the shape of the memory of a zygote with these options. */
async function zygoteShape(options: SandboxOptions): Promise<MemoryShape> {
  const sandbox = await openSandbox({ ...options, zygotes: 1, level: 'full' })
  try {
    return memoryShape((sandbox as ZygotePool).zygotePids.at(-1)!)
  } finally {
    await sandbox.close()
  }
}

async function libraryRate(sandbox: Sandbox, workload: Workload): Promise<Rate> {
  const cpuBefore = treeCpuMs(process.pid)
  const start = performance.now()
  let calls = 0
  const sender = async (first: number) => {
    for (let n = first; performance.now() - start < SECONDS * 1000; n += 64) {
      const requests = Array.from({ length: 64 }, (_, i) => ({ id: String(n + i), code: codeOf(workload, n + i) }))
      for (const [i, result] of (await runBatch(sandbox, requests, { concurrency: 64 })).entries()) {
        const printed = Buffer.from(result.stdout).toString()
        if (printed !== workload.prints(n + i))
          throw new Error(
            `call ${n + i} ended with ${result.status} and printed ${printed}, expected ${workload.prints(n + i)}`,
          )
      }
      calls += 64
    }
  }
  await Promise.all(Array.from({ length: 4 }, (_, k) => sender(1_000_000 * (k + 1))))
  const perSecond = (1000 * calls) / (performance.now() - start)
  return { perSecond, cpuMs: (treeCpuMs(process.pid) - cpuBefore) / calls }
}

/** Measures the rate of the workload `trivial` in every way to run it, and the rates of the baselines. */
export async function trivialRates(python: string): Promise<Part> {
  const cores = availableParallelism()
  const workload = workloads.trivial
  const floors = openFloors()
  const shape = await zygoteShape({ python })
  const one = await openSandbox({ python, zygotes: 1 })
  const all = await openSandbox({ python })
  const judge = await startJudge({ kind: 'sandbox', options: { python } })
  const fresh = await startJudge({ kind: 'fresh', workers: cores, python })
  try {
    const rates = await measureTogether({
      bareSpawn: () => floors.spawn(SECONDS, cores, [python, '-c', 'print(1)']),
      forkExit: () => floors.fork(1),
      isolatedFloorOneCore: () => floors.isolated(SECONDS, 1, python, shape),
      isolatedFloor: () => floors.isolated(SECONDS, cores, python, shape),
      bareZygoteOneCore: () => floors.zygote(SECONDS, 1, python, '', workload.program),
      bareZygote: () => floors.zygote(SECONDS, cores, python, '', workload.program),
      libraryOneCore: () => libraryRate(one, workload),
      library: () => libraryRate(all, workload),
      judgeOverHttp: () => batchRate(judge, workload, HTTP),
      freshProcessesOverHttp: () => batchRate(fresh, workload, { ...HTTP, senders: 1 }),
    })
    return {
      metrics: {
        ...rateMetrics('trivial', rates),
        'trivial.judgeOverFreshProcesses': times(rates.judgeOverHttp, rates.freshProcessesOverHttp),
      },
      budgets: [
        atLeast('trivial: judge over HTTP, times the bare spawn', times(rates.judgeOverHttp, rates.bareSpawn), 5.3),
        atLeast(
          'trivial: the fresh-process worker over HTTP, share of the bare spawn',
          times(rates.freshProcessesOverHttp, rates.bareSpawn),
          0.5,
        ),
        atLeast('trivial: library, share of the bare zygote', times(rates.library, rates.bareZygote), 0.45),
        atLeast(
          "trivial: library, share of C's fork and _exit, per core",
          times(rates.library, rates.forkExit) / cores,
          0.05,
        ),
        atLeast('trivial: library, share of the isolated floor', times(rates.library, rates.isolatedFloor), 0.7),
        atLeast('trivial: HTTP, share of the library', times(rates.judgeOverHttp, rates.library), 0.9),
        atLeast(
          `trivial: library on ${cores} cores, times one core`,
          times(rates.library, rates.libraryOneCore),
          0.9 * cores,
        ),
      ],
    }
  } finally {
    floors.remove()
    await Promise.all([one.close(), all.close(), judge.close(), fresh.close()])
  }
}

/**
 * Measures the rate of a workload, and the rate of bare process starts, which workers with a fresh process for each
 * call cannot exceed.
 */
export async function workloadRates(name: 'wrapper' | 'numpy' | 'sympy', python: string): Promise<Part> {
  const cores = availableParallelism()
  const { options, command, bound, against } = settings(name)
  const floors = openFloors()
  const judge = await startJudge({ kind: 'sandbox', options: { python, ...options } })
  const workload = workloads[name]
  const fresh = await startJudge({ kind: 'fresh', workers: cores, python })
  const few = { senders: 1, batch: 2 * cores, seconds: SECONDS } // small batches: 64 calls of a slow worker take long
  try {
    const { spawn, ...rates } = await measureTogether({
      spawn: () => floors.spawn(SECONDS, cores, [python, '-c', command]),
      freshProcessesOverHttp: () => batchRate(fresh, workload, name === 'wrapper' ? { ...HTTP, senders: 1 } : few),
      judgeOverHttp: () => batchRate(judge, workload, HTTP),
    })
    return {
      metrics: {
        ...rateMetrics(name, { [against]: spawn, ...rates }),
        [`${name}.judgeOverFreshProcesses`]: times(rates.judgeOverHttp, rates.freshProcessesOverHttp),
      },
      budgets: [atLeast(`${name}: judge over HTTP, times the ${against}`, times(rates.judgeOverHttp, spawn), bound)],
    }
  } finally {
    floors.remove()
    await Promise.all([judge.close(), fresh.close()])
  }
}

/**
 * Measures all four workloads in turn through one judge in its default configuration, beside a judge without preloads
 * and beside bare process starts. Every kind of zygote runs throughout, as in a judge that has served for a while.
 */
export async function oneJudgeRates(python: string): Promise<Part> {
  const cores = availableParallelism()
  const floors = openFloors()
  const defaults = { python, preload: STANDARD_PRELOAD, lazyPreload: true }
  const judge = await startJudge({ kind: 'sandbox', options: defaults })
  const plain = await startJudge({ kind: 'sandbox', options: { python } })
  const spawn = (command: string) => floors.spawn(SECONDS, cores, [python, '-c', command])
  const [small, middle, large] = [
    await zygoteShape({ python }),
    await zygoteShape({ python, preload: 'numpy' }),
    await zygoteShape({ python, preload: 'numpy,mpmath+sympy' }),
  ] as const
  const floor = (shape: MemoryShape) => floors.isolated(SECONDS, cores, python, shape)
  try {
    for (const workload of Object.values(workloads)) await batchRate(judge, workload, { ...HTTP, seconds: 1 })
    const rates = await measureTogether({
      trivialWithoutPreloads: () => batchRate(plain, workloads.trivial, HTTP),
      isolatedFloor: () => floor(small),
      trivial: () => batchRate(judge, workloads.trivial, HTTP),
      bareSpawn: () => spawn('print(1)'),
      wrapper: () => batchRate(judge, workloads.wrapper, HTTP),
      isolatedFloorNumpy: () => floor(middle),
      numpy: () => batchRate(judge, workloads.numpy, HTTP),
      spawnAndImportNumpy: () => spawn('import numpy'),
      isolatedFloorSympy: () => floor(large),
      sympy: () => batchRate(judge, workloads.sympy, HTTP),
      spawnAndImportSympy: () => spawn('import sympy'),
    })
    const over = (rate: Rate, floor: Rate, what: string, bound: number) =>
      atLeast(`one judge, default configuration: ${what}`, times(rate, floor), bound)
    return {
      metrics: rateMetrics('default', rates),
      budgets: [
        over(rates.trivial, rates.trivialWithoutPreloads, 'trivial, share of a judge without preloads', 0.9),
        over(rates.trivial, rates.bareSpawn, 'trivial, times the bare spawn', 5.3),
        over(rates.wrapper, rates.bareSpawn, 'wrapper, times the bare spawn', 4.6),
        over(rates.numpy, rates.spawnAndImportNumpy, 'numpy, times spawn and import', 32),
        over(rates.sympy, rates.spawnAndImportSympy, 'sympy, times spawn and import', 93),
        over(rates.trivial, rates.isolatedFloor, 'trivial, share of the isolated floor', 0.7),
        over(rates.wrapper, rates.isolatedFloor, 'wrapper, share of the isolated floor', 0.7),
        over(rates.numpy, rates.isolatedFloorNumpy, 'numpy, share of the isolated floor', 0.7),
        over(rates.sympy, rates.isolatedFloorSympy, 'sympy, share of the isolated floor', 0.7),
      ],
    }
  } finally {
    floors.remove()
    await Promise.all([judge.close(), plain.close()])
  }
}

interface Settings {
  readonly options: SandboxOptions
  readonly command: string
  readonly bound: number
  readonly against: 'bareSpawn' | 'spawnAndImport'
}

function settings(name: 'wrapper' | 'numpy' | 'sympy'): Settings {
  if (name === 'wrapper') {
    return { options: {}, command: 'print(1)', bound: 4.6, against: 'bareSpawn' }
  }
  const bound = name === 'numpy' ? 32 : 93
  const options = { preload: 'numpy+sympy' } as const
  return { options, command: `import ${name}`, bound, against: 'spawnAndImport' }
}
