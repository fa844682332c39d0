/**
 * Measures a run's CPU time and memory by part: engine, trainer, renderer, tools, Node.
 *
 * in   the run's facts (tool processes end too soon to be sampled), /proc of this process's children
 * out  CPU seconds by part; the sum of the peak resident memory of this process, engines, trainer and renderer. Without
 * /proc only this process and the tools are measured
 */
import { readdirSync, readFileSync } from 'node:fs'
import type { Message } from '../../messages'

export interface CpuSplit {
  readonly seconds: Readonly<Record<'engine' | 'trainer' | 'renderer' | 'tools' | 'node', number>>
  readonly peakMib: number
}

const ticksPerSecond = 100 // USER_HZ, clock ticks per second of /proc: the same on every Linux that Node runs on
const partOf = { engine: 'engine', trainer: 'trainer', render: 'renderer' } as const

interface Use {
  readonly part: 'engine' | 'trainer' | 'renderer'
  readonly seconds: number
  readonly peakKib: number
}

export function cpuUse(): { take(message: Message): void; sample(): void; split(): CpuSplit } {
  const uses = new Map<number, Use>()
  const before = process.cpuUsage()
  let toolsMs = 0
  return {
    take(message) {
      if (message.type === 'tool.completed') toolsMs += message.cpuMs
    },
    /** Samples the child processes that are alive; a process that has ended stays counted as of its last sample. */
    sample() {
      for (const [pid, use] of children()) uses.set(pid, use)
    },
    split() {
      this.sample()
      const node = process.cpuUsage(before)
      const of = (part: Use['part']) =>
        [...uses.values()].filter(u => u.part === part).reduce((sum, u) => sum + u.seconds, 0)
      const kib = [...uses.values()].reduce((sum, u) => sum + u.peakKib, process.resourceUsage().maxRSS)
      return {
        seconds: {
          engine: of('engine'),
          trainer: of('trainer'),
          renderer: of('renderer'),
          tools: toolsMs / 1000,
          node: (node.user + node.system) / 1e6,
        },
        peakMib: kib / 1024,
      }
    },
  }
}

function children(): [number, Use][] {
  const found: [number, Use][] = []
  for (const pid of pids()) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      const [, parent, ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      if (Number(parent) !== process.pid) continue
      const served = /--serve\0(engine|trainer|render)\0/.exec(readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
      if (served === null) continue
      const peak = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
      // Fields 14 and 15 (user and system time) of proc(5), counted from the state, which is field 3.
      const seconds = (Number(rest[9]) + Number(rest[10])) / ticksPerSecond
      found.push([pid, { part: partOf[served[1] as keyof typeof partOf], seconds, peakKib: Number(peak?.[1] ?? 0) }])
    } catch {
      // The process ended meanwhile; its last sample counts.
    }
  }
  return found
}

function pids(): number[] {
  try {
    return readdirSync('/proc')
      .filter(name => /^\d+$/.test(name))
      .map(Number)
  } catch {
    return []
  }
}
