/**
 * Faults of child processes: kills (SIGKILL) or stops (SIGSTOP, then SIGCONT) a child of each kind, while it starts or
 * later.
 *
 * Invariant: no kind is killed more often than its supervisor allows. That is: at most four kills of a kind within a
 * minute; after a kill of a child that did not serve yet, the next kill of its kind is of one that serves (a child that
 * seems to serve may still be starting, and a supervisor gives up after three failed starts in a row); between two
 * kills of a trainer that serves, a trainer has given a result.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../../../kernels/random'
import { type Child, type ChildKind, childKinds, childrenOf } from './children'
import type { Fault } from './fault'

/**
 * Upper bound on the duration of a stop, ms. It is above 3 s, after which a watchdog kills a silent zygote, and below
 * the time that a turn or a grade may take.
 */
const longestStopMs = 6000
const mostInAMinute = 4

/**
 * @param parents returns the pids of the processes whose children may be killed or stopped now
 * @param trained resolves with the number of results that trainers have given so far: steps, checkpoints, versions of
 * weights
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

/** Sends a signal to a process. Returns false if the process has ended. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    return false
  }
}
