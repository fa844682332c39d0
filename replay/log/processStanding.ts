/**
 * Finds out whether the process that wrote a supervision tree still exists.
 *
 * in   a tree
 * out  stopped: the tree says that all its actors ended. on another host: the process cannot be seen from this host.
 *      running: this host has a process with the tree's process id. gone: this host has none
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
