/**
 * Upper bound on the paused cells of all sessions of a sandbox: as many as the descriptors of its zygotes (warm
 * interpreters that fork a child for each call) and the process limit of this process's cgroup allow.
 *
 * in   the number of zygotes that have sessions; /proc and /sys/fs/cgroup      out  a number of paused cells
 * Invariant: at least FEWEST, which fits the limits that Linux sets by default.
 */
import { readFileSync } from 'node:fs'

/**
 * Upper bound for any machine: 2,000 sessions of two paused cells each, and cells that replace others. STATES in
 * shim/state.h is the same number, as the bound of each zygote.
 */
const MOST = 4352
const FEWEST = 400
/** A session with two paused cells holds five descriptors of its zygote; a zygote needs a few hundred more. */
const DESCRIPTORS_A_STATE = 2.5
const DESCRIPTORS_BESIDE = 400
/**
 * A session with two paused cells has three processes; half of the processes that the cgroup allows are left for
 * others.
 */
const PROCESSES_A_STATE = 1.5

export function stateBound(zygotes: number, roots = { proc: '/proc', cgroup: '/sys/fs/cgroup' }): number {
  const descriptors = numberIn(`${roots.proc}/self/limits`, /^Max open files\s+\S+\s+(\d+)/m)
  const processes =
    numberIn(`${roots.cgroup}/pids.max`, /^(\d+)/) ?? numberIn(`${roots.cgroup}/pids/pids.max`, /^(\d+)/)
  const byDescriptors = descriptors && (zygotes * (descriptors - DESCRIPTORS_BESIDE)) / DESCRIPTORS_A_STATE
  const byProcesses = processes && processes / 2 / PROCESSES_A_STATE
  const bounds = [byDescriptors, byProcesses].filter(bound => bound !== undefined)
  return Math.max(FEWEST, Math.floor(Math.min(MOST, ...bounds)))
}

function numberIn(file: string, pattern: RegExp): number | undefined {
  try {
    const found = pattern.exec(readFileSync(file, 'latin1'))?.[1]
    return found === undefined ? undefined : Number(found)
  } catch {
    return undefined
  }
}
