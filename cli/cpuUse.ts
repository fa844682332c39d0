/**
 * Where a run's CPU time went: engine, trainer, tools, Node. From facts and statuses; Node's own from the process.
 */
import type { EngineStatus } from '../messages/commands'
import type { Fact } from '../messages/facts'

export interface CpuSplit {
  /** CPU seconds by part. */
  readonly seconds: Readonly<Record<'engine' | 'trainer' | 'tools' | 'node', number>>
  /** Peak resident memory of the engines and trainer processes and of Node, MiB. */
  readonly peakMib: number
}

export function cpuUse(): { take(message: Fact | EngineStatus): void; split(): CpuSplit } {
  const engines = new Map<string, { cpuMs: number; rss: number }>()
  let trainerMs = 0
  let trainerRss = 0
  let toolsMs = 0
  const before = process.cpuUsage()
  return {
    take(message) {
      if (message.type === 'engine.status') {
        engines.set(message.engine, { cpuMs: message.cpuMs, rss: message.maxRssBytes })
      } else if (message.type === 'step.completed') {
        // The trainer reports its process's total, so the latest one counts.
        trainerMs = Math.max(trainerMs, message.metrics.processCpuMs ?? trainerMs + (message.metrics.cpuMs ?? 0))
        trainerRss = Math.max(trainerRss, message.metrics.maxRssBytes ?? 0)
      } else if (message.type === 'tool.completed') toolsMs += message.cpuMs
    },
    split() {
      const node = process.cpuUsage(before)
      const all = [...engines.values()]
      const rss = all.reduce((sum, e) => sum + e.rss, 0) + trainerRss + process.resourceUsage().maxRSS * 1024
      return {
        seconds: {
          engine: all.reduce((sum, e) => sum + e.cpuMs, 0) / 1000,
          trainer: trainerMs / 1000,
          tools: toolsMs / 1000,
          node: (node.user + node.system) / 1e6,
        },
        peakMib: rss / 2 ** 20,
      }
    },
  }
}
