/**
 * Measures a run's CPU time and memory by part: engine, trainer, renderer, tools, Node.
 *
 * in   the run's facts (tool processes end too soon to be sampled), /proc of this process's children
 * out  CPU seconds by part; the sum of the peak resident memory of this process, engines, trainer and renderer. Without
 * /proc only this process and the tools are measured
 */
import { readFileSync } from 'node:fs'
import type { Message } from '../../messages'
import { pids, processStat } from '../io/processes'

export interface CpuSplit {
  readonly seconds: Readonly<Record<'engine' | 'trainer' | 'renderer' | 'tools' | 'node', number>>
  readonly peakMib: number
}

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
      const { parent, cpuSeconds: seconds } = processStat(pid)
      if (parent !== process.pid && !isForkServerOfOurs(parent)) continue
      const served = /--serve\0(engine|trainer|render)\0/.exec(readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
      if (served === null) continue
      const peak = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
      found.push([pid, { part: partOf[served[1] as keyof typeof partOf], seconds, peakKib: Number(peak?.[1] ?? 0) }])
    } catch {
      // The process has ended since it was listed; its last sample counts.
    }
  }
  return found
}

/** True for the fork server of this process, whose forks are its engines and its trainer. */
const isForkServerOfOurs = (pid: number): boolean =>
  processStat(pid).parent === process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('fork_server')
