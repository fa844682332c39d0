/**
 * Measures how many seconds a `troupe` command takes: elapsed time and processor time.
 *
 * in   the command's arguments        out  the least of three runs after one that fills caches
 * Invariant: the command ends with 0, else the measurement throws.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'

const runs = 3
const timeoutMs = 120_000

export function commandSeconds(args: readonly string[]): { readonly wall: number; readonly cpu: number } {
  const script = 'TIMEFORMAT="%R %U %S"; { time "$@" > /dev/null 2>&1; } 2>&1'
  const command = ['-c', script, 'bash', process.execPath, join(__dirname, '../../cli/bin.js'), ...args]
  const measured = Array.from({ length: runs + 1 }, () => {
    const text = execFileSync('bash', command, { encoding: 'utf8', timeout: timeoutMs })
    const [wall = Number.NaN, user = Number.NaN, system = Number.NaN] = text.trim().split(/\s+/).map(Number)
    return { wall, cpu: user + system }
  }).slice(1)
  return { wall: Math.min(...measured.map(one => one.wall)), cpu: Math.min(...measured.map(one => one.cpu)) }
}
