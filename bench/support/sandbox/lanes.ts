/**
 * Measures the sandbox's lanes (its parallel call slots): the cost of a timeout, how long many sleeping calls take,
 * and the memory of an idle zygote and of an idle session.
 *
 * in   the sandbox, as a library      out  measurements, and the budgets that they are compared with
 */
import { availableParallelism } from 'node:os'
import { openSandbox, type RunRequest, runBatch, type Sandbox } from '../../../sandbox'
import { STANDARD_PRELOAD } from '../../../sandbox/options'
import { atMost, median } from '../../report'
import { processTree, pssBytes } from '../processTree'
import type { Part } from './rates'

const MIB = 1024 * 1024
const SLEEPERS = 240
const SESSIONS = 20

const call = (code: string, rest: Partial<RunRequest> = {}): RunRequest => ({ id: 'bench', code, ...rest })

/**
 * Measures how late calls that never end (asleep or spinning) are stopped, and how a spinning call slows other calls.
 */
export async function timeouts(python: string): Promise<Part> {
  const sandbox = await openSandbox({ python })
  try {
    const limitMs = 400
    const over: number[] = []
    for (const code of ['import time; time.sleep(60)', 'while True: pass']) {
      for (let i = 0; i < 8; i++) {
        const start = performance.now()
        const { status } = await sandbox.run(call(code, { timeoutMs: limitMs }))
        if (status !== 'timeout') throw new Error(`an endless call ended with the status ${status}; expected timeout`)
        over.push(performance.now() - start - limitMs)
      }
    }
    // One call spins on a core until its time limit, while the calls of other lanes go on.
    const alone = await trivialMs(sandbox)
    const spinning = sandbox.run(call('while True: pass', { timeoutMs: 4000 }))
    const beside = await trivialMs(sandbox)
    await spinning
    return {
      metrics: {
        'timeouts.overLimitP50Ms': median(over),
        'timeouts.overLimitMaxMs': Math.max(...over),
        'timeouts.otherCallAloneP50Ms': median(alone),
        'timeouts.otherCallBesideSpinnerP50Ms': median(beside),
        'timeouts.otherCallBesideSpinnerMaxMs': Math.max(...beside),
      },
      budgets: [
        atMost('a timeout: ms beyond its limit, at most', Math.max(...over), 20),
        atMost('another lane beside a spinner: p50, times that alone', median(beside) / median(alone), 2),
      ],
    }
  } finally {
    await sandbox.close()
  }
}

async function trivialMs(sandbox: Sandbox): Promise<readonly number[]> {
  const times: number[] = []
  for (let i = 0; i < 100; i++) {
    const start = performance.now()
    await sandbox.run(call('print(1)'))
    times.push(performance.now() - start)
  }
  return times
}

/** Runs 240 calls per core that sleep half a second, all at once. */
export async function sleepers(python: string): Promise<Part> {
  const sandbox = await openSandbox({ python })
  try {
    const cores = availableParallelism()
    const requests = Array.from({ length: SLEEPERS * cores }, () => call('import time; time.sleep(0.5); print(1)'))
    await runBatch(sandbox, requests.slice(0, 2 * sandbox.lanes)) // warm-up: afterwards every lane has run a call
    const start = performance.now()
    const results = await runBatch(sandbox, requests)
    const seconds = (performance.now() - start) / 1000
    if (results.some(result => result.status !== 'ok'))
      throw new Error('a sleeping call did not end with the status ok')
    return {
      metrics: { 'sleepers.calls': requests.length, 'sleepers.seconds': seconds, 'sleepers.lanes': sandbox.lanes },
      budgets: [atMost('240 calls a core that sleep 0.5 s: seconds', seconds, 3)],
    }
  } finally {
    await sandbox.close()
  }
}

/**
 * Measures the memory of an idle zygote (a warm interpreter that forks a child for each call) of each kind, with shared
 * pages counted once, and how much each further session adds.
 */
export async function memory(python: string): Promise<Part> {
  const before = new Set(processTree(process.pid).map(use => use.pid))
  const sandbox = await openSandbox({ python, preload: STANDARD_PRELOAD, zygotes: 1 })
  try {
    await sandbox.run(call('print(1)'))
    const ours = () => processTree(process.pid).filter(use => !before.has(use.pid))
    const total = () => ours().reduce((sum, use) => sum + pssBytes(use.pid), 0) / MIB
    // Each kind of zygote has imported more than the one before it.
    const [std, numpy, sympy, all] = ours()
      .map(use => pssBytes(use.pid) / MIB)
      .sort((a, b) => a - b)
      .slice(-4) as [number, number, number, number]
    const idle = { std, numpy, sympy, all }
    let sessionMiB = Number.NaN
    const cell = "import sympy\nx = sympy.Symbol('x')\nprint(sympy.expand((x + 1) ** 5))"
    const started: number[] = []
    for (let s = 0; s < SESSIONS; s++) {
      const { status } = await sandbox.run(call(cell, { session: { id: `s${s}`, cell: 0 } }))
      if (status !== 'ok') break // the sandbox's isolation level has no sessions
      started.push(total())
    }
    if (started.length === SESSIONS) sessionMiB = (started.at(-1)! - started[0]!) / (SESSIONS - 1)
    return {
      metrics: {
        ...Object.fromEntries(Object.entries(idle).map(([kind, mib]) => [`memory.idleZygoteMiB.${kind}`, mib])),
        'memory.sessionMiB': sessionMiB,
      },
      budgets: [
        atMost('idle zygote with numpy and sympy, MiB', sympy, 80),
        atMost('session that uses sympy, MiB', sessionMiB, 8),
      ],
    }
  } finally {
    await sandbox.close()
  }
}
