/**
 * Injects faults one after the other, until the given time is over and the given number is reached, or the run has ended.
 *
 * in   faults with weights, a seed, a duration, the mean pause between faults        out  how often each was injected
 * Invariant: the order of the faults follows from the seed; their times and their victims depend on the machine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { pcg32 } from '../../../kernels/random'
import type { Fault } from './fault'

export interface ScheduleOptions {
  readonly faults: readonly Fault[]
  readonly seed: number
  /** Milliseconds for which faults are injected. */
  readonly faultsForMs: number
  /** On a slow machine faults go on, for up to ten times as long, until there were so many. Default: 0. */
  readonly leastFaults?: number
  /** Mean pause before each fault, in milliseconds. */
  readonly everyMs: number
  readonly isOver: () => Promise<boolean>
  readonly say?: (text: string) => void
}

export type FaultCounts = ReadonlyMap<string, number>

/** Longest time for which faults are injected, in times of `faultsForMs`. */
const longest = 10

export async function strikeFaults(options: ScheduleOptions): Promise<FaultCounts> {
  const { faults, faultsForMs, leastFaults = 0, everyMs, isOver, say = () => {} } = options
  const random = pcg32(options.seed)
  const counts = new Map<string, number>()
  const began = performance.now()
  const isDone = () => {
    const struck = [...counts.values()].reduce((sum, count) => sum + count, 0)
    return performance.now() - began >= faultsForMs * (struck < leastFaults ? longest : 1)
  }
  while (!isDone()) {
    await sleep(everyMs * (0.5 + random.uniform()))
    if (await isOver()) break
    const fault = chosen(faults, random.uniform())
    const done = await fault.strike(random)
    if (done === undefined) continue
    say(done)
    counts.set(fault.name, (counts.get(fault.name) ?? 0) + 1)
  }
  return counts
}

/** Picks a fault with a probability in proportion to its weight. `at`: a uniform random number, 0 to 1. */
function chosen(faults: readonly Fault[], at: number): Fault {
  let left = at * faults.reduce((sum, { weight }) => sum + weight, 0)
  for (const fault of faults) {
    left -= fault.weight
    if (left < 0) return fault
  }
  return faults.at(-1)!
}
