/**
 * Measures environments of the drivers `oci` and `docker` with an image of a few megabytes: starts (8 in flight),
 * commands, snapshots, forks. A driver that this machine lacks is left out. `--only oci` or `--only docker` measures
 * that driver alone.
 *
 * A start is timed from the call to the end of a first command. Only `oci` has budgets.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  dockerDriver,
  dockerMissing,
  type Environment,
  type EnvironmentDriver,
  type EnvironmentSpec,
  ociDriver,
  ociMissing,
} from '../environments'
import { Engine, engineAddress } from '../environments/docker/engine'
import { quantile } from '../kernels'
import { systemEffects } from '../runtime/effects'
import { importMinimal, makeMinimalImage, removeImages } from '../tests/support/minimalImage'
import { atMost, type BenchReport, type Budget, describeMachine, median } from './report'

const starts = 96
const inFlight = 8
const commands = 200
const snapshots = { small: 20, large: 3 }
const spec: EnvironmentSpec = { image: 'minimal', network: 'no-network', limits: { memoryMb: 512, processes: 64 } }

interface Figures {
  readonly start: readonly number[]
  readonly exec: readonly number[]
  readonly small: readonly number[]
  readonly large: readonly number[]
  readonly fork: readonly number[]
}

const drivers = {
  oci: { open: ociDriver, missing: () => ociMissing() },
  docker: { open: dockerDriver, missing: () => dockerMissing() },
} as const
type Name = keyof typeof drivers

export async function bench({ only }: { readonly only?: readonly string[] } = {}): Promise<BenchReport> {
  const metrics: Record<string, number> = {}
  let budgets: readonly Budget[] = []
  for (const name of Object.keys(drivers) as Name[]) {
    if (only !== undefined && !only.includes(name)) continue
    const missing = drivers[name].missing()
    if (missing !== undefined) {
      process.stderr.write(`the driver ${name} is not measured: ${missing}\n`)
      continue
    }
    const figures = await measure(name)
    Object.assign(metrics, metricsOf(name, figures))
    if (name === 'oci') budgets = budgetsOf(figures)
  }
  return { bench: 'environments', machine: describeMachine(), metrics, budgets }
}

async function measure(name: Name): Promise<Figures> {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-environments-bench-'))
  makeMinimalImage(directory)
  const engine = name === 'docker' ? new Engine(engineAddress()!) : undefined
  if (engine !== undefined) await importMinimal(engine, directory)
  const driver = drivers[name].open({ run: 'bench', fx: systemEffects, directory })
  try {
    await driver.start(spec).then(one => one.stop()) // the first start in a process also loads modules
    return { start: await timedStarts(driver), ...(await timedWork(driver)) }
  } finally {
    await driver.close()
    if (engine !== undefined) await removeImages(engine, directory)
    engine?.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await work()
  return performance.now() - began
}

const runTrue = async (one: Environment) => {
  const { status } = await one.exec({ command: ['true'], timeoutMs: 60_000 })
  if (status !== 'ok') throw new Error(`the command \`true\` ended with ${status} in an environment, expected ok`)
}

async function timedStarts(driver: EnvironmentDriver): Promise<readonly number[]> {
  const taken: number[] = []
  let left = starts
  const lane = async () => {
    while (left-- > 0) {
      const began = performance.now()
      const one = await driver.start(spec)
      await runTrue(one)
      taken.push(performance.now() - began)
      await one.stop()
    }
  }
  await Promise.all(Array.from({ length: inFlight }, lane))
  return taken
}

async function timedWork(driver: EnvironmentDriver): Promise<Omit<Figures, 'start'>> {
  const one = await driver.start(spec)
  const [exec, small, large, fork]: number[][] = [[], [], [], []]
  for (let n = 0; n < commands; n++) exec!.push(await timed(() => runTrue(one)))
  const fill = async (megabytes: number) => {
    const command = `head -c ${megabytes * 1_000_000} /dev/urandom > /app/file`
    const { status } = await one.exec({ command, timeoutMs: 60_000 })
    if (status !== 'ok') throw new Error(`the command that writes ${megabytes} MB ended with ${status}, expected ok`)
  }
  for (let n = 0; n < snapshots.small; n++) {
    await fill(1)
    small!.push(await timed(() => one.snapshot()))
    let two: Environment | undefined
    fork!.push(
      await timed(async () => {
        two = await driver.fork(one)
      }),
    )
    await two?.stop()
  }
  for (let n = 0; n < snapshots.large; n++) {
    await fill(100)
    large!.push(await timed(() => one.snapshot()))
  }
  await one.stop()
  return { exec: exec!, small: small!, large: large!, fork: fork! }
}

const metricsOf = (name: Name, { start, exec, small, large, fork }: Figures): Record<string, number> => ({
  [`${name}: start to first command, p50 ms`]: quantile(start, 0.5),
  [`${name}: start to first command, p99 ms`]: quantile(start, 0.99),
  [`${name}: 'true', ms`]: median(exec),
  [`${name}: snapshot of 1 MB, ms`]: median(small),
  [`${name}: snapshot of 100 MB, ms`]: median(large),
  [`${name}: fork, ms`]: median(fork),
})

const budgetsOf = ({ start, exec, small, large, fork }: Figures): readonly Budget[] => [
  atMost('start to first command at 8 in flight, p50 ms', quantile(start, 0.5), 80),
  atMost('start to first command at 8 in flight, p99 ms', quantile(start, 0.99), 250),
  atMost("'true', ms", median(exec), 5),
  atMost('snapshot of 1 MB, ms', median(small), 20),
  atMost('snapshot of 100 MB, ms', median(large), 400),
  atMost('fork, ms', median(fork), 100),
]

if (require.main === module) {
  void bench().then(report => {
    const { printReport } = require('./report') as typeof import('./report')
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
