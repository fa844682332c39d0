/**
 * Memory of this machine, or of the control group (cgroup) that holds this process: how much there is, how much is free,
 * how often the kernel has killed for lack of it.
 *
 * in   /proc and /sys/fs/cgroup, of cgroup v2, v1 or both      out  bytes, a count
 * Invariant: what cannot be read is not guessed: without limits of a cgroup the machine's memory counts, and without
 * counters nobody was killed.
 */
import { readFileSync } from 'node:fs'
import { totalmem } from 'node:os'
import { join } from 'node:path'

export interface MachineMemory {
  /** Memory of the machine, or the lowest limit of the cgroups above this process, in bytes. */
  readonly totalBytes: number
  /** Bytes that can still be taken. */
  availableBytes(): number
  /** Number of processes that the kernel killed for lack of memory, on this machine and in this process's cgroups. */
  kills(): number
}

const V2 = { most: 'memory.max', now: 'memory.current', kills: 'memory.events', cache: /^inactive_file (\d+)/m }
const V1 = {
  most: 'memory.limit_in_bytes',
  now: 'memory.usage_in_bytes',
  kills: 'memory.oom_control',
  cache: /^total_inactive_file (\d+)/m,
}

/** Reads the memory. @param roots where /proc and /sys/fs/cgroup are */
export function machineMemory(roots = { proc: '/proc', cgroup: '/sys/fs/cgroup' }): MachineMemory {
  const groups = groupsOf(roots)
  const meminfo = (name: string) =>
    1024 * numberIn(read(join(roots.proc, 'meminfo')), new RegExp(`^${name}: +(\\d+)`, 'm'))
  const limitOf = ({ at, files }: Group) => numberIn(read(join(at, files.most)), /^(\d+)/)
  const machine = meminfo('MemTotal') || totalmem()
  return {
    totalBytes: Math.min(machine, ...groups.map(limitOf).map(limit => limit || machine)),
    availableBytes() {
      const left = groups.flatMap(group => {
        const limit = limitOf(group)
        if (limit === 0 || limit > machine) return []
        const { at, files } = group
        const used =
          numberIn(read(join(at, files.now)), /^(\d+)/) - numberIn(read(join(at, 'memory.stat')), files.cache)
        return [limit - used]
      })
      return Math.min(meminfo('MemAvailable') || machine, ...left)
    },
    kills() {
      const ofGroups = groups.map(({ at, files }) => numberIn(read(join(at, files.kills)), /^oom_kill (\d+)/m))
      const ofMachine = numberIn(read(join(roots.proc, 'vmstat')), /^oom_kill (\d+)/m)
      return ofGroups.reduce((sum, n) => sum + n, ofMachine)
    },
  }
}

interface Group {
  readonly at: string
  readonly files: typeof V1 | typeof V2
}

/** Lists the memory cgroups of this process and those above it, as far as they can be seen here. */
function groupsOf({ proc, cgroup }: { readonly proc: string; readonly cgroup: string }): readonly Group[] {
  const found: Group[] = []
  for (const line of read(join(proc, 'self/cgroup')).split('\n')) {
    const [, names, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? []
    if (path === undefined || (names !== '' && !names?.split(',').includes('memory'))) continue
    const files = names === '' ? V2 : V1
    const roots = names === '' ? [cgroup, join(cgroup, 'unified')] : [join(cgroup, 'memory')]
    for (const root of roots) {
      const parts = path.split('/').filter(Boolean)
      for (let depth = parts.length; depth >= 0; depth--) {
        const at = join(root, ...parts.slice(0, depth))
        if (read(join(at, files.now)) !== '' || read(join(at, files.most)) !== '') found.push({ at, files })
      }
    }
  }
  return found
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1')
  } catch {
    return ''
  }
}

/** Returns the number that the pattern finds; 0 if there is none, such as for `max`. */
const numberIn = (text: string, pattern: RegExp): number => Number(pattern.exec(text)?.[1] ?? 0)
