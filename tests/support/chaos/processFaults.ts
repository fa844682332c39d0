/**
 * Faults of a run's own processes: kills one (SIGKILL) and restarts it, or stops one for a while (SIGSTOP, SIGCONT).
 *
 * in   processes by name, with a function that restarts each        out  faults
 * Invariant: a process that was killed has ended before it is started again.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Fault } from './fault'

export interface Victim {
  readonly name: string
  /** Role under which faults are counted; several processes may have the same role. */
  readonly role: string
  signal(name: NodeJS.Signals): void
  ended(): Promise<unknown>
  start(): void
}

export interface ProcessFaultsOptions {
  readonly victims: readonly Victim[]
  readonly longestStopMs: number
  /** Weight of killing one process; stopping it has two thirds of this weight. */
  readonly weight: number
}

export function processFaults({ victims, longestStopMs, weight }: ProcessFaultsOptions): readonly Fault[] {
  const roles = [...new Set(victims.map(({ role }) => role))]
  return roles.flatMap(role => {
    const all = victims.filter(one => one.role === role)
    const pick = (at: number) => all[Math.floor(at * all.length)]!
    return [
      {
        name: `kill ${role}`,
        weight: weight * all.length,
        async strike(random) {
          const victim = pick(random.uniform())
          const afterMs = Math.round((random.uniform() * longestStopMs) / 4)
          victim.signal('SIGKILL')
          await victim.ended()
          await sleep(afterMs)
          victim.start()
          return `kill ${victim.name}, again after ${afterMs} ms`
        },
      },
      {
        name: `stop ${role}`,
        weight: (2 / 3) * weight * all.length,
        async strike(random) {
          const victim = pick(random.uniform())
          const forMs = Math.round(random.uniform() * longestStopMs)
          victim.signal('SIGSTOP')
          await sleep(forMs)
          victim.signal('SIGCONT')
          return `stop ${victim.name} for ${forMs} ms`
        },
      },
    ]
  })
}
