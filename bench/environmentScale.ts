/**
 * Holds 200 environments of the driver `oci` alive at once, then starts and stops 2,000, 8 of them at a time, and
 * counts what is left behind.
 *
 * in   an image of a few megabytes        out  times, memory, and counts before and after
 * Every environment runs a command while all 200 are alive. Left behind must be nothing: no mount of this machine, no
 * process, no cgroup, no open descriptor and no file of an environment; Node's memory after 2,000 starts is compared
 * with that after 200.
 */
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Environment, type EnvironmentSpec, ociDriver, ociMissing } from '../environments'
import { quantile } from '../kernels'
import { systemEffects } from '../runtime/effects'
import { makeMinimalImage } from '../tests/support/minimalImage'
import { atLeast, atMost, type BenchReport, describeMachine } from './report'

const alive = 200
const starts = 2000
const inFlight = 8
const spec: EnvironmentSpec = { image: 'minimal', network: 'no-network', limits: { memoryMb: 64, processes: 16 } }

export async function bench(): Promise<BenchReport> {
  const missing = ociMissing()
  if (missing !== undefined) throw new Error(`the driver oci is not measured: ${missing}`)
  const directory = mkdtempSync(join(tmpdir(), 'troupe-environment-scale-'))
  makeMinimalImage(directory)
  const driver = ociDriver({ run: 'scale', fx: systemEffects, directory })
  const start = async () => {
    const one = await driver.start(spec)
    await answers(one)
    return one
  }
  try {
    await (await start()).stop() // the first start also loads modules
    const before = traces(directory)
    const memoryBefore = availableMb()
    const began = performance.now()
    const living = (await inLanes(alive, start)) as Environment[]
    const startedMs = performance.now() - began
    const ofAlive = traces(directory)
    const answering = (await inLanes(alive, n => answers(living[n]!))).length
    const memoryOfOneMb = (memoryBefore - availableMb()) / alive
    await inLanes(alive, n => living[n]!.stop())
    const nodeMb = rssMb()
    const times: number[] = []
    await inLanes(starts, async () => {
      const at = performance.now()
      const one = await start()
      times.push(performance.now() - at)
      await one.stop()
    })
    const after = traces(directory)
    const left = Object.fromEntries(Object.entries(after).map(([name, n]) => [name, n - before[name as keyof Traces]]))
    return {
      ...{ bench: 'environmentScale', machine: describeMachine() },
      metrics: {
        'start of 200 that stay alive, s': startedMs / 1000,
        'memory of one that is alive, MiB': memoryOfOneMb,
        '2,000 starts, p50 ms': quantile(times, 0.5),
        '2,000 starts, p99 ms': quantile(times, 0.99),
      },
      budgets: [
        atLeast('alive and answering at once', answering, alive),
        atLeast('processes of those alive: a keeper and a first process each', ofAlive.processes, 2 * alive),
        ...Object.entries(left).map(([name, n]) => atMost(`${name} left behind`, n, 0)),
        atMost("Node's memory after 2,000 starts, MiB above that after 200", rssMb() - nodeMb, 64),
      ],
    }
  } finally {
    await driver.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

async function answers(one: Environment): Promise<void> {
  const { status } = await one.exec({ command: ['true'], timeoutMs: 120_000 })
  if (status !== 'ok') throw new Error(`the command \`true\` ended with ${status} in an environment, expected ok`)
}

async function inLanes<T>(count: number, work: (n: number) => Promise<T>): Promise<readonly T[]> {
  const done: T[] = []
  let next = 0
  const lane = async () => {
    while (next < count) done.push(await work(next++))
  }
  await Promise.all(Array.from({ length: inFlight }, lane))
  return done
}

interface Traces {
  readonly mounts: number
  readonly processes: number
  readonly descriptors: number
  readonly cgroups: number
  readonly directories: number
}

/**
 * Counts what environments below `directory` have on this machine. A process counts if it works in their directories
 * (a keeper) or is in their cgroups (a process inside).
 */
function traces(directory: string): Traces {
  const processes = readdirSync('/proc').filter(name => /^\d+$/.test(name) && isOfEnvironment(name, directory))
  return {
    mounts: readFileSync('/proc/self/mountinfo', 'utf8').split('\n').length,
    processes: processes.length,
    descriptors: readdirSync('/proc/self/fd').length,
    cgroups: cgroupsBelow('/sys/fs/cgroup', 3),
    directories: list(join(directory, 'live', 'scale', '0')).length,
  }
}

function isOfEnvironment(pid: string, directory: string): boolean {
  try {
    const cgroups = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
    return cgroups.includes(`/troupe-${process.pid}-`) || readlinkSync(`/proc/${pid}/cwd`).startsWith(directory)
  } catch {
    return false // the process has ended meanwhile
  }
}

/** Cgroups of environments of this process: their names begin with `troupe-` and its pid. */
function cgroupsBelow(path: string, depth: number): number {
  let count = 0
  for (const name of list(path)) {
    if (name.startsWith(`troupe-${process.pid}-`)) count++
    else if (depth > 0 && !name.includes('.')) count += cgroupsBelow(join(path, name), depth - 1)
  }
  return count
}

function list(path: string): readonly string[] {
  try {
    return readdirSync(path)
  } catch {
    return [] // no directory, or gone meanwhile
  }
}

const availableMb = () => Number(/MemAvailable:\s+(\d+)/.exec(readFileSync('/proc/meminfo', 'utf8'))![1]) / 1024
const rssMb = () => process.memoryUsage().rss / 1024 / 1024

if (require.main === module) {
  void bench().then(report => {
    const { printReport } = require('./report') as typeof import('./report')
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
