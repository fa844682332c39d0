/**
 * Compares tool calls through the bus (coordinator, dispatcher, executors) with the sandbox as a library: 45,000 calls
 * at once, each arm on all cores.
 *
 * Parts: `lmdb` (one process, two executors), `kafka` (broker, coordinator, dispatcher and an executor on one host, a
 * second executor on another, which is a network namespace; each executor has half of the cores), `kill` (as kafka, but
 * the second executor is killed when half of the calls are answered). The library is measured first. An answer is a
 * fact in the log; every answer is checked. `TROUPE_BENCH_CALLS` sets the number of calls.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { codeOptions } from '../actors/tools/codeEnvironment'
import { openLmdbBus } from '../runtime/bus'
import { openSandbox } from '../sandbox'
import { runPythonTool } from '../sandbox/tools/pythonTool'
import { kafkaLibs } from '../tests/support/kafka'
import { linkedHosts } from '../tests/support/linkedHosts'
import { atLeast, atMost, type BenchReport, type Budget, describeMachine, printReport } from './report'
import { openExecutor } from './support/calls/executor'
import { codeOf, printed, TIMEOUT_MS, trajectoriesOf } from './support/calls/load'
import { type PlaneFigures, runPlane } from './support/calls/plane'
import { processTree, pssBytes } from './support/processTree'

const CALLS = Number(process.env.TROUPE_BENCH_CALLS ?? 45_000)
const RATIO = 1.25
const EXECUTORS = 2
const MIB = 1024 * 1024
const CORES = availableParallelism()
/**
 * Expected time with a kill at half of the calls, as a multiple of the time without: one executor fewer runs the second
 * half.
 */
const KILL_EXPLAINS = 0.5 + (0.5 * EXECUTORS) / (EXECUTORS - 1)

/** Cores of executor number `n`: each executor gets an equal share of its own, as if each ran on another host. */
const coresOf = (n: number) =>
  Array.from({ length: CORES }, (_, core) => core).filter(core => core % EXECUTORS === n % Math.min(CORES, EXECUTORS))

interface Cost {
  readonly seconds: number
  /**
   * CPU milliseconds per call of all processes, a broker included. Unlike elapsed time, this hardly depends on other
   * work.
   */
  readonly cpuMsPerCall: number
  readonly brokerCpuMsPerCall: number
  /** Peak memory of coordinator, dispatcher and executors together, without a broker, MiB. */
  readonly peakMiB: number
}

type Measured = PlaneFigures & Cost

/** Runs all calls in one sandbox. */
async function library(): Promise<Cost> {
  const sandbox = await openSandbox({ ...codeOptions({}), queueLimit: CALLS })
  const memory = watchMemory(() => [process.pid])
  const cpu = watchCpu()
  cpu.began()
  const began = performance.now()
  const calls = Array.from({ length: CALLS }, async (_, n) => {
    const { stdout } = await runPythonTool(sandbox, { code: codeOf(n), input: '' }, { timeoutMs: TIMEOUT_MS })
    if (stdout !== printed(n))
      throw new Error(
        `call ${n} of the library printed ${JSON.stringify(stdout)}, expected ${JSON.stringify(printed(n))}`,
      )
  })
  await Promise.all(calls)
  const seconds = (performance.now() - began) / 1000
  cpu.ended()
  await sandbox.close()
  return { seconds, ...cpu.perCall(), peakMiB: memory.stop() }
}

async function lmdb(): Promise<Measured> {
  const directory = mkdtempSync(join(process.env.TROUPE_BENCH_DIR ?? tmpdir(), 'troupe-bench-calls-'))
  const bus = await openLmdbBus({ directory, mode: 'write' })
  const closers: (() => Promise<void>)[] = []
  try {
    const memory = watchMemory(() => [process.pid])
    const onWaiting = async () => {
      for (let n = 0; n < EXECUTORS; n++) closers.push(await openExecutor(bus, `executor-${n}`, coresOf(n).length))
    }
    const cpu = watchCpu()
    const on = { onWaiting, onBegan: cpu.began, onEnded: cpu.ended }
    const figures = await runPlane(bus, { calls: CALLS, executors: EXECUTORS, ...on })
    return { ...figures, ...cpu.perCall(), peakMiB: memory.stop() }
  } finally {
    for (const close of closers) await close()
    await bus.close()
    rmSync(directory, { recursive: true })
  }
}

async function kafka(kills: boolean): Promise<Measured> {
  const hosts = await linkedHosts('')
  const children: ChildProcess[] = []
  const start = (file: string, prefix: readonly string[], ...args: readonly string[]) => {
    const node = [process.execPath, '-r', join(__dirname, '../cli/register.js'), join(__dirname, 'support/calls', file)]
    const [program, ...rest] = [...prefix, ...node, ...args]
    const child = spawn(program!, rest, { stdio: ['pipe', 'pipe', 'inherit'] })
    children.push(child)
    return child
  }
  try {
    const plane = start('plane.ts', hosts.near.prefix, hosts.near.bus, String(CALLS), String(EXECUTORS))
    const memory = watchMemory(() => children.map(({ pid }) => pid!))
    const cpu = watchCpu()
    let last = ''
    let second: ChildProcess | undefined
    for await (const line of createInterface({ input: plane.stdout! })) {
      if (line === 'executors') {
        const pinned = (n: number) => ['taskset', '-c', coresOf(n).join(',')]
        start('executor.ts', [...hosts.near.prefix, ...pinned(0)], hosts.near.bus, 'executor-0')
        second = start('executor.ts', [...hosts.far.prefix, ...pinned(1)], hosts.far.bus, 'executor-1')
      } else if (line === 'began') cpu.began()
      else if (line === 'ended') cpu.ended()
      else if (line === 'half' && kills) second?.kill('SIGKILL')
      last = line
    }
    return { ...(JSON.parse(last) as PlaneFigures), ...cpu.perCall(), peakMiB: memory.stop() }
  } finally {
    const ended = children.map(child => (child.exitCode ?? child.signalCode) === null && once(child, 'exit'))
    for (const child of children) child.stdin?.end()
    await Promise.all(ended)
    await hosts.close()
  }
}

const parts: Readonly<Record<string, () => Promise<Measured>>> = {
  lmdb,
  kafka: () => kafka(false),
  kill: () => kafka(true),
}

export async function bench({
  only = Object.keys(parts),
}: {
  readonly only?: readonly string[]
} = {}): Promise<BenchReport> {
  const unknown = only.find(name => !Object.hasOwn(parts, name))
  if (unknown !== undefined)
    throw new Error(`the benchmark calls has no part '${unknown}'; its parts: ${Object.keys(parts).join(', ')}`)
  // Before anything is measured: a part that fails later would lose the figures of those before it.
  if (only.includes('kafka') || only.includes('kill')) kafkaLibs()
  process.stderr.write('calls: library\n')
  const alone = await library()
  const metrics: Record<string, number> = {
    ...{ calls: CALLS, trajectories: trajectoriesOf(CALLS).length },
    ...withPrefix('library', alone),
  }
  const budgets: Budget[] = []
  const measured: Record<string, Measured> = {}
  for (const name of only) {
    process.stderr.write(`calls: ${name}\n`)
    const { byExecutor, ...figures } = await parts[name]!()
    measured[name] = { byExecutor, ...figures }
    Object.assign(metrics, withPrefix(name, figures), withPrefix(name, byExecutor))
    metrics[`${name}.cpuTimesLibrary`] = figures.cpuMsPerCall / alone.cpuMsPerCall
    budgets.push(...budgetsOf(name, measured, alone.seconds))
  }
  return { bench: 'calls', machine: describeMachine(), metrics, budgets }
}

const withPrefix = (name: string, figures: object): Record<string, number> =>
  Object.fromEntries(Object.entries(figures).map(([field, value]) => [`${name}.${field}`, value as number]))

function budgetsOf(name: string, measured: Readonly<Record<string, Measured>>, alone: number): readonly Budget[] {
  const { right, repeated, seconds, manyBeforeFew, peakMiB } = measured[name]!
  const whole = measured.kafka?.seconds
  return [
    atLeast(`${name}: calls answered right`, right, CALLS),
    atMost(`${name}: peak memory, MiB`, peakMiB, 2048),
    ...(name === 'kill'
      ? whole === undefined
        ? []
        : [atMost('kill: seconds, times what one executor fewer explains', seconds / (KILL_EXPLAINS * whole), 1.1)]
      : [
          atMost(`${name}: seconds, times the library's`, seconds / alone, RATIO),
          atMost(`${name}: answers beyond one a call`, repeated, 0),
          atMost(
            `${name}: share of calls of trajectories with 100 that came before the others' last`,
            manyBeforeFew / (CALLS / 9),
            0.1,
          ),
        ]),
  ]
}

/** Measures the CPU time of this process and its descendants; an ended one counts only if its parent waited for it. */
function watchCpu() {
  const now = () => processTree(process.pid).reduce((sum, { cpuMs }) => sum + cpuMs, 0)
  const broker = () =>
    processTree(process.pid).reduce((sum, { command, cpuMs }) => sum + (command.includes('kafka.Kafka') ? cpuMs : 0), 0)
  let [before, after, ofBroker] = [0, 0, 0]
  return {
    began() {
      ofBroker = -broker()
      before = now()
    },
    ended() {
      after = now()
      ofBroker += broker()
    },
    perCall: () => ({ cpuMsPerCall: (after - before) / CALLS, brokerCpuMsPerCall: ofBroker / CALLS }),
  }
}

/** Samples the memory of processes with all their descendants; a page that several share counts once. */
function watchMemory(pids: () => readonly number[]) {
  let peak = 0
  const timer = setInterval(() => {
    const all = new Set(pids().flatMap(pid => processTree(pid).map(use => use.pid)))
    peak = Math.max(peak, [...all].reduce((sum, pid) => sum + pssBytes(pid), 0) / MIB)
  }, 2000)
  return {
    stop() {
      clearInterval(timer)
      return peak
    },
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
