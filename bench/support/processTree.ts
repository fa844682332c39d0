/**
 * Reads a process and all its descendants from /proc (Linux): command lines and CPU time; and a process's memory.
 *
 * in   a pid        out  for each living process its command line and CPU time; a process's share of memory
 * Memory is PSS: a page that n processes share counts 1/n in each, so the sum is the memory that the tree really takes.
 */
import { readdirSync, readFileSync } from 'node:fs'

export interface ProcessUse {
  readonly pid: number
  readonly command: string
  /** Milliseconds of user and system time so far, including children that ended and were waited for. */
  readonly cpuMs: number
}

/** Milliseconds per clock tick: /proc counts CPU time in hundredths of a second on every Linux. */
const msPerTick = 10

/** Lists the process first, then its descendants. Processes that end while /proc is read are left out. */
export function processTree(root: number): readonly ProcessUse[] {
  const all = new Map<number, ProcessUse & { readonly parent: number }>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const use = processUse(Number(name))
    if (use !== undefined) all.set(use.pid, use)
  }
  const pids = [root]
  for (const pid of pids) for (const use of all.values()) if (use.parent === pid) pids.push(use.pid)
  return pids.flatMap(pid => all.get(pid) ?? [])
}

/** PSS of a process in bytes; 0 when the process has ended. */
export function pssBytes(pid: number): number {
  const kib = /^Pss:\s+(\d+) kB$/m.exec(read(`/proc/${pid}/smaps_rollup`) ?? '')?.[1]
  return Number(kib ?? 0) * 1024
}

function processUse(pid: number): (ProcessUse & { readonly parent: number }) | undefined {
  const stat = read(`/proc/${pid}/stat`)
  if (stat === undefined) return undefined
  // The process name, in parentheses, may hold any character; the fields after it are numbers.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const command = (read(`/proc/${pid}/cmdline`) ?? '').replaceAll('\0', ' ').trim()
  const ticks = [11, 12, 13, 14].reduce((sum, k) => sum + Number(fields[k]), 0)
  return { pid, command, parent: Number(fields[1]), cpuMs: ticks * msPerTick }
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined // the process ended meanwhile
  }
}
