/**
 * Faults of child processes: each kind is killed (SIGKILL) or stopped (SIGSTOP, then SIGCONT), as it starts or later.
 *
 * Invariant: no child is killed more often than its supervisor allows: at most four of a kind within a minute, no second
 * one in a row before it served (one that seems to serve may still be starting, and the third failed start is the last), and no trainer twice without a result in between.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../../../kernels/random'
import { type Child, type ChildKind, childKinds, childrenOf } from './children'
import type { Fault } from './fault'

/** A zygote that is silent for 3 s is killed by its own watchdog; a turn and an answer to grade have more time. */
const longestStopMs = 6000
const mostInAMinute = 4

/**
 * @param parents pids of the processes whose children are struck, as they are now
 * @param trained number of results that trainers have had so far: steps, checkpoints, versions of weights
 */
export function childFaults(
  parents: () => readonly number[],
  trained: () => Promise<number>,
  kinds: readonly ChildKind[] = childKinds,
): readonly Fault[] {
  /** `trained` at the latest kill of a trainer that served. */
  let results = -1
  const deaths = new Map<ChildKind, { readonly at: number; readonly served: boolean }[]>()
  const pick = (kind: ChildKind, random: Random): Child | undefined => {
    const all = parents()
      .flatMap(childrenOf)
      .filter(child => child.kind === kind)
    return all[Math.floor(random.uniform() * all.length)]
  }
  const mayKill = async ({ kind, serves }: Child): Promise<boolean> => {
    const earlier = deaths.get(kind) ?? []
    const recent = earlier.filter(({ at }) => performance.now() - at < 60_000)
    const unserved = earlier.slice(-1).filter(({ served }) => !served).length
    if (recent.length >= mostInAMinute || (!serves && unserved >= 1)) return false
    if (kind !== 'trainer' || !serves) return true
    const now = await trained()
    if (now === results) return false
    results = now
    return true
  }
  return kinds.flatMap(kind => [
    {
      name: `kill ${kind}`,
      weight: 1,
      async strike(random) {
        const child = pick(kind, random)
        if (child === undefined || !(await mayKill(child)) || !signal(child.pid, 'SIGKILL')) return undefined
        deaths.set(kind, [...(deaths.get(kind) ?? []), { at: performance.now(), served: child.serves }])
        return `kill ${kind}${child.serves ? '' : ' as it starts'}`
      },
    },
    {
      name: `stop ${kind}`,
      weight: 0.6,
      async strike(random) {
        const child = pick(kind, random)
        const forMs = Math.round(random.uniform() * longestStopMs)
        if (child === undefined || !signal(child.pid, 'SIGSTOP')) return undefined
        await sleep(forMs)
        signal(child.pid, 'SIGCONT')
        return `stop ${kind} for ${forMs} ms`
      },
    },
  ])
}

/** False if the process has ended. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    return false
  }
}
