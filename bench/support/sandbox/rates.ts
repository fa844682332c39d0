/**
 * Calls a second of one workload, all ways side by side in one run: rounds of a few seconds in turn, medians over rounds.
 *
 * in   a workload      out  rates for both cores together, and the budgets that hold between them
 */
import { availableParallelism } from 'node:os'
import { openSandbox, runBatch, type Sandbox, type SandboxOptions } from '../../../sandbox'
import { atLeast, type Budget, median } from '../../report'
import { openFloors } from './floors'
import { batchRate, startJudge } from './judgeClient'
import { codeOf, type Workload, workloads } from './programs'

export interface Part {
  readonly metrics: Readonly<Record<string, number>>
  readonly budgets: readonly Budget[]
}

const ROUNDS = 3
const SECONDS = 2.5
const HTTP = { senders: 8, batch: 64, seconds: SECONDS }

type Ways = Readonly<Record<string, () => Promise<number>>>

/** Every way once a round, in turn, so that a slow moment of the machine meets them all. */
async function sideBySide<W extends Ways>(ways: W): Promise<Record<keyof W, number>> {
  const rates = new Map<string, number[]>(Object.keys(ways).map(name => [name, []]))
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, measure] of Object.entries(ways)) rates.get(name)!.push(await measure())
  }
  return Object.fromEntries([...rates].map(([name, values]) => [name, median(values)])) as Record<keyof W, number>
}

async function libraryRate(sandbox: Sandbox, workload: Workload): Promise<number> {
  const start = performance.now()
  let calls = 0
  const sender = async (first: number) => {
    for (let n = first; performance.now() - start < SECONDS * 1000; n += 64) {
      const requests = Array.from({ length: 64 }, (_, i) => ({ id: String(n + i), code: codeOf(workload, n + i) }))
      for (const [i, result] of (await runBatch(sandbox, requests, { concurrency: 64 })).entries()) {
        const printed = Buffer.from(result.stdout).toString()
        if (printed !== workload.prints(n + i)) throw new Error(`call ${n + i} printed ${printed}: ${result.status}`)
      }
      calls += 64
    }
  }
  await Promise.all(Array.from({ length: 4 }, (_, k) => sender(1_000_000 * (k + 1))))
  return (1000 * calls) / (performance.now() - start)
}

/** `trivial`: everything there is to compare with. */
export async function trivialRates(python: string): Promise<Part> {
  const cores = availableParallelism()
  const workload = workloads.trivial
  const floors = openFloors()
  const one = await openSandbox({ python, zygotes: 1 })
  const all = await openSandbox({ python })
  const judge = await startJudge({ kind: 'sandbox', options: { python } })
  const fresh = await startJudge({ kind: 'fresh', workers: cores, python })
  try {
    const rates = await sideBySide({
      spawn: () => floors.spawn(SECONDS, cores, [python, '-c', 'print(1)']),
      fork: () => floors.fork(1),
      zygoteOne: () => floors.zygote(SECONDS, 1, python, '', workload.program),
      zygoteAll: () => floors.zygote(SECONDS, cores, python, '', workload.program),
      libraryOne: () => libraryRate(one, workload),
      libraryAll: () => libraryRate(all, workload),
      http: () => batchRate(judge, workload, HTTP),
      fresh: () => batchRate(fresh, workload, { ...HTTP, senders: 1 }),
    })
    return {
      metrics: {
        'trivial.bareSpawnPerSecond': rates.spawn,
        'trivial.freshProcessesOverHttpPerSecond': rates.fresh,
        'trivial.judgeOverHttpPerSecond': rates.http,
        'trivial.libraryPerSecond': rates.libraryAll,
        'trivial.libraryOneCorePerSecond': rates.libraryOne,
        'trivial.bareZygotePerSecond': rates.zygoteAll,
        'trivial.bareZygoteOneCorePerSecond': rates.zygoteOne,
        'trivial.forkExitPerSecondPerCore': rates.fork,
        'trivial.judgeOverFreshProcesses': rates.http / rates.fresh,
      },
      budgets: [
        atLeast('trivial: judge over HTTP, times the bare spawn', rates.http / rates.spawn, 5.3),
        atLeast('trivial: the fresh-process worker over HTTP, share of the bare spawn', rates.fresh / rates.spawn, 0.5),
        atLeast('trivial: library, share of the bare zygote', rates.libraryAll / rates.zygoteAll, 0.45),
        atLeast("trivial: library, share of C's fork and _exit, per core", rates.libraryAll / cores / rates.fork, 0.05),
        atLeast('trivial: HTTP, share of the library', rates.http / rates.libraryAll, 0.75),
        atLeast(`trivial: library on ${cores} cores, times one core`, rates.libraryAll / rates.libraryOne, 0.9 * cores),
      ],
    }
  } finally {
    floors.remove()
    await Promise.all([one.close(), all.close(), judge.close(), fresh.close()])
  }
}

/** A workload against the spawn that the peer cannot pass. */
export async function workloadRates(name: 'wrapper' | 'numpy' | 'sympy', python: string): Promise<Part> {
  const cores = availableParallelism()
  const { options, command, bound, against } = settings(name)
  const floors = openFloors()
  const judge = await startJudge({ kind: 'sandbox', options: { python, ...options } })
  const workload = workloads[name]
  const fresh = await startJudge({ kind: 'fresh', workers: cores, python })
  const few = { senders: 1, batch: 2 * cores, seconds: SECONDS } // of a slow worker's calls, a batch of 64 takes long
  try {
    const rates = await sideBySide({
      spawn: () => floors.spawn(SECONDS, cores, [python, '-c', command]),
      fresh: () => batchRate(fresh, workload, name === 'wrapper' ? { ...HTTP, senders: 1 } : few),
      http: () => batchRate(judge, workload, HTTP),
    })
    return {
      metrics: {
        [`${name}.${against}PerSecond`]: rates.spawn,
        [`${name}.freshProcessesOverHttpPerSecond`]: rates.fresh,
        [`${name}.judgeOverHttpPerSecond`]: rates.http,
        [`${name}.judgeOverFreshProcesses`]: rates.http / rates.fresh,
      },
      budgets: [atLeast(`${name}: judge over HTTP, times the ${against}`, rates.http / rates.spawn, bound)],
    }
  } finally {
    floors.remove()
    await Promise.all([judge.close(), fresh.close()])
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
