/**
 * Measures a run's CPU time and memory by part: engine, trainer, renderer, tools, Node.
 *
 * in   the run's facts (tool processes end too soon to be sampled), /proc of this process's descendants
 * out  CPU seconds by part; the sum of the peak resident memory of this process, engines, trainer and renderer. Without
 * /proc only this process and the tools are measured
 */
import { readFileSync } from 'node:fs'
import type { Message } from '../../messages'
import { family, type ServedPart, servedPart } from '../io/processes'

export interface CpuSplit {
  readonly seconds: Readonly<Record<ServedPart | 'tools' | 'node', number>>
  readonly peakMib: number
}

interface Use {
  readonly part: ServedPart
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
    /** Samples the descendants that are alive; a process that has ended stays counted as of its last sample. */
    sample() {
      for (const [pid, use] of descendants()) uses.set(pid, use)
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

function descendants(): [number, Use][] {
  const found: [number, Use][] = []
  for (const { pid, cpuSeconds } of family()) {
    try {
      const part = servedPart(readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
      if (part === undefined) continue
      const peak = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
      found.push([pid, { part, seconds: cpuSeconds, peakKib: Number(peak?.[1] ?? 0) }])
    } catch {
      // The process has ended since it was listed; its last sample counts.
    }
  }
  return found
}
