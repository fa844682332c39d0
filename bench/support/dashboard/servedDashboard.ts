/**
 * `troupe dashboard` as a process of its own, over the runs of a directory.
 *
 * in   a directory with runs        out  the page's address, the process and its use of CPU and memory
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { endedHow } from '../../../runtime/errors'
import { processTree } from '../processTree'

/** The checkout, or the package's folder. */
export const root = join(__dirname, __filename.endsWith('.ts') ? '../../..' : '../../../..')

export interface ServedDashboard {
  readonly url: string
  /** CPU time so far, in seconds. */
  cpuSeconds(): number
  /** Memory without the mapped log, in MB. */
  megabytes(): number
  end(): Promise<void>
}

export async function serveDashboard(directory: string): Promise<ServedDashboard> {
  const args = [join(root, 'cli/bin.js'), 'dashboard', '--bus', `lmdb:${directory}`, '--port', '0']
  const env = { ...process.env, TROUPE_HOME: join(directory, 'home') }
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  const pid = child.pid!
  const url = await addressOf(child)
  const ended = new Promise<void>(resolve => child.once('exit', () => resolve()))
  return {
    url,
    cpuSeconds: () => processTree(pid).reduce((sum, { cpuMs }) => sum + cpuMs, 0) / 1000,
    megabytes: () => (rssAnonKib(pid) * 1024) / 1e6,
    end: () => {
      child.kill('SIGTERM')
      return ended
    },
  }
}

function addressOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let printed = ''
    child.once('exit', (code, signal) => reject(new Error(`the dashboard ${endedHow(code, signal)}: ${printed}`)))
    child.stderr!.on('data', chunk => {
      printed += chunk
      const found = /dashboard: (\S+)/.exec(printed)
      if (found !== null) resolve(found[1]!)
    })
  })
}

const rssAnonKib = (pid: number): number =>
  Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? Number.NaN)
