/**
 * Reads processes of this machine from /proc.
 *
 * in   nothing
 * out  pids; this process and its descendants, with their CPU time; the part of a run that a process serves
 * Invariant: without /proc the lists are empty and nothing fails. Reading the stat of a process that has ended throws.
 */
import { readdirSync, readFileSync } from 'node:fs'

/** Clock ticks per second of /proc (USER_HZ): the same on every Linux that Node runs on. */
const ticksPerSecond = 100

export function pids(): readonly number[] {
  try {
    return readdirSync('/proc')
      .filter(name => /^\d+$/.test(name))
      .map(Number)
  } catch {
    return []
  }
}

/** Returns the parent of a process, and the CPU time in seconds that it has used. @throws if it has ended */
export function processStat(pid: number): { readonly parent: number; readonly cpuSeconds: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  // Fields of proc(5) from the third on: state, parent, …; user and system time are fields 14 and 15.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return { parent: Number(fields[1]), cpuSeconds: (Number(fields[11]) + Number(fields[12])) / ticksPerSecond }
}

/** Returns this process and its descendants, each with the CPU time in seconds that it has used. */
export function family(): readonly { readonly pid: number; readonly cpuSeconds: number }[] {
  const stats = new Map<number, ReturnType<typeof processStat>>()
  for (const pid of pids()) {
    try {
      stats.set(pid, processStat(pid))
    } catch {
      // The process has ended since it was listed.
    }
  }
  const isOurs = (pid: number): boolean => {
    for (let at: number | undefined = pid; at !== undefined && at > 0; at = stats.get(at)?.parent)
      if (at === process.pid) return true
    return false
  }
  return [...stats].filter(([pid]) => isOurs(pid)).map(([pid, { cpuSeconds }]) => ({ pid, cpuSeconds }))
}

export type ServedPart = 'engine' | 'trainer' | 'renderer'
const partOf = { engine: 'engine', trainer: 'trainer', render: 'renderer' } as const

/**
 * Part of a run that a process serves, by its command line; undefined for other processes. The forks of a trainer that
 * compute gradients count as the trainer.
 */
export function servedPart(command: string): ServedPart | undefined {
  if (command.includes('troupe_policy.trainer.parallel_gradients\0')) return 'trainer'
  const served = /--serve\0(engine|trainer|render)\0/.exec(command)
  return served === null ? undefined : partOf[served[1] as keyof typeof partOf]
}
