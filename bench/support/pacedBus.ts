/**
 * Wraps a bus so that it holds back the rollouts of a step until the benchmark releases them: two arms can alternate
 * step by step.
 *
 * in   a bus        out  the same bus, whose appends of rollout.requested wait at a gate
 * Invariant: no other append is changed or delayed. The curriculum draws (chooses the problems of) one step at a time,
 * so at most one append waits.
 */
import type { Bus } from '../../runtime/bus/bus'

export interface PacedBus {
  readonly bus: Bus
  /** Resolves when the next step's rollouts are drawn and wait at the gate, with a function that lets them through. */
  nextDraw(): Promise<() => void>
  /** Removes the gate and lets a waiting append through: closing a run would hang on an append that never ends. */
  openForGood(): void
}

export function pacedBus(bus: Bus): PacedBus {
  /** Functions that release the appends waiting at the gate, whether or not `nextDraw` has returned them. */
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
