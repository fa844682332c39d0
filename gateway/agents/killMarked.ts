/**
 * Kills what is left of agents that have ended: their process groups, and every process whose environment has their
 * mark (a variable).
 *
 * in   marks, pids of group leaders
 * out  resolves when a scan of /proc finds no process with the mark, at the latest after `mostRounds` scans
 * Invariant: agents that end together share one scan. A process that has left the agent's process group is found only
 * if its /proc/PID/environ has the mark: not if it was executed without it, nor if a Python function forked it.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { MARK, signalTo } from '../../sandbox/freshProcess/killProcesses'

/**
 * Upper bound on the scans for the processes of one agent. One scan is not enough, since a process may fork after the
 * scan has read it and before it is killed.
 */
const mostRounds = 50
/** Pause between two scans. */
const pauseMs = 2

interface Ended {
  rounds: number
  readonly resolve: () => void
}

const ended = new Map<string, Ended>()
const markOf = new RegExp(`(?:^|\0)${MARK}=([^\0]+)`)

export function killMarked(mark: string, leader: number): Promise<void> {
  if (leader > 0) signalTo(-leader, 'SIGKILL')
  return new Promise(resolve => {
    ended.set(mark, { rounds: 0, resolve })
    if (ended.size === 1) setImmediate(look)
  })
}

function look(): void {
  const left = new Set<string>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const mark = markIn(`/proc/${name}/environ`)
    if (mark === undefined || !ended.has(mark)) continue
    left.add(mark)
    signalTo(Number(name), 'SIGKILL')
  }
  for (const [mark, one] of ended) {
    if (left.has(mark) && ++one.rounds < mostRounds) continue
    ended.delete(mark)
    one.resolve()
  }
  if (ended.size > 0) setTimeout(look, pauseMs)
}

function markIn(path: string): string | undefined {
  try {
    return markOf.exec(readFileSync(path, 'latin1'))?.[1]
  } catch {
    return undefined // not readable: the process has ended, or belongs to another user
  }
}
