/**
 * Finds out whether the process that a supervision tree names still exists.
 *
 * in   a tree        out  its standing; a process on another host cannot be seen from here
 */
import { hostname } from 'node:os'
import type { SupervisionTree } from './supervisionTrees'

export type ProcessStanding = 'running' | 'stopped' | 'gone' | 'on another host'

export function processStanding({
  isStopped,
  host,
  pid,
}: Pick<SupervisionTree, 'isStopped' | 'host' | 'pid'>): ProcessStanding {
  if (isStopped) return 'stopped'
  if (host !== hostname()) return 'on another host'
  try {
    process.kill(pid, 0)
    return 'running'
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EPERM' ? 'running' : 'gone'
  }
}
