/**
 * The dashboard of `train --dashboard`: a process of its own, so that readers of the page take no time from the run.
 *
 * in   the run's bus and name        out  the page's address on stderr; a function that ends the process
 * Invariant: the process ends when its stdin ends, so it outlives neither `close` nor a run that is killed.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { TroupeError } from '../../runtime/errors'

export interface DashboardOf {
  readonly bus: string
  readonly dir?: string
  readonly run: string
  readonly port: number
}

/** @throws TroupeError cli.wrong_usage for a memory bus, which no other process can read */
export function checkDashboardBus(bus: string): void {
  if (bus !== 'memory:') return
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: '--dashboard reads the log from another process, but the log of a memory bus exists only in this process',
    hint: 'leave out --bus memory:',
  })
}

export function startDashboard({ bus, dir, run, port }: DashboardOf): () => void {
  const where = ['--bus', bus, ...(dir === undefined ? [] : ['--dir', dir])]
  const bin = join(__dirname, __filename.endsWith('.ts') ? '../bin.js' : '../../../cli/bin.js')
  const child = spawn(
    process.execPath,
    [bin, 'dashboard', ...where, '--run', run, '--port', String(port), '--until-stdin-ends'],
    { stdio: ['pipe', 'ignore', 'inherit'], detached: true },
  )
  child.once('error', error => process.stderr.write(`dashboard: it could not be started: ${error.message}\n`))
  child.stdin?.on('error', () => {}) // the dashboard has ended by itself, and its stderr says why
  child.unref()
  return () => child.stdin?.end()
}
