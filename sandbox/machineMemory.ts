/**
 * Memory of this machine, or of the control group (cgroup) that holds this process: its size, its free part, and how
 * many processes the kernel has killed for lack of memory.
 *
 * in   /proc and /sys/fs/cgroup, of cgroup v2, v1 or both      out  bytes, a count
 * Invariant: without a readable cgroup limit, the size is the machine's memory; free memory that cannot be read counts
 * as the machine's whole memory, a counter that cannot be read as 0.
 */
import { readFileSync } from 'node:fs'
import { totalmem } from 'node:os'
import { join } from 'node:path'

export interface MachineMemory {
  /** Memory of the machine, or the lowest limit of this process's cgroups if that is lower, in bytes. */
  readonly totalBytes: number
  /** Free memory in bytes: the least of what the machine and each of the cgroups have left. */
  availableBytes(): number
  /**
   * Sum of the kernel's counters of processes killed for lack of memory, of the machine and of this process's cgroups.
   * One kill may count in several of them: only the growth of the sum says something.
   */
  kills(): number
}

const V2 = { most: 'memory.max', now: 'memory.current', kills: 'memory.events', cache: /^inactive_file (\d+)/m }
const V1 = {
  most: 'memory.limit_in_bytes',
  now: 'memory.usage_in_bytes',
  kills: 'memory.oom_control',
  cache: /^total_inactive_file (\d+)/m,
}

/**
 * Reads `totalBytes` once; the two methods read the files again at each call. @param roots paths of /proc and
 * /sys/fs/cgroup
 */
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
