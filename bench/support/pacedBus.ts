/**
 * A bus that holds back the rollouts of a step until the benchmark says so: so two arms can take turns, step by step.
 *
 * in   a bus        out  the same bus, whose appends of rollout.requested wait at a gate
 * Invariant: nothing else is touched or delayed. The curriculum draws a step at a time, so at most one append waits.
 */
import type { Bus } from '../../runtime/bus/bus'

export interface PacedBus {
  readonly bus: Bus
  /** Resolves when the next step's rollouts are drawn and stand at the gate, with what lets them through. */
  nextDraw(): Promise<() => void>
  /** No gate any more: a run that is to be closed must not have an append that never ends. */
  openForGood(): void
}

export function pacedBus(bus: Bus): PacedBus {
  /** What stands at the gate, whether anybody has taken it up or not. */
  const closed = new Set<() => void>()
  const drawn: (() => void)[] = []
  const waiting: ((open: () => void) => void)[] = []
  let gone = false
  return {
    bus: {
      ...bus,
      append(records) {
        if (gone || !records.some(record => record.headers.type === 'rollout.requested')) return bus.append(records)
        return new Promise((resolve, reject) => {
          const open = () => {
            if (closed.delete(open)) bus.append(records).then(resolve, reject)
          }
          closed.add(open)
          const taker = waiting.shift()
          if (taker === undefined) drawn.push(open)
          else taker(open)
        })
      },
    },
    nextDraw: () =>
      new Promise(resolve => {
        const open = drawn.shift()
        if (open === undefined) waiting.push(resolve)
        else resolve(open)
      }),
    openForGood() {
      gone = true
      for (const open of closed) open()
    },
  }
}
