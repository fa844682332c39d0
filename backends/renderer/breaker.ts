/**
 * Circuit breaker before a process that may be slow: after a late call it makes fewer calls at once, and repeats the
 * late call.
 *
 * in   calls that may be repeated, because they change nothing        out  their results
 * Invariants: at most `most` calls are made at once. The others wait in their order, so that their deadlines begin when
 * they are made; the queue is bounded by the callers. A late call halves the number of calls at once, down to one, and
 * is made again; calls that were under way at a halving do not halve it again. An answer raises the number by one. A
 * caller gets the error of lateness only when its call was late `tries` times.
 */
export interface BreakerOptions {
  /** Upper bound on the calls at once. */
  readonly most: number
  /** Upper bound on the attempts at one call that is late each time. */
  readonly tries: number
  readonly isLate: (thrown: unknown) => boolean
}

export function breaker({ most, tries, isLate }: BreakerOptions) {
  const waiting: (() => void)[] = []
  let [atOnce, running] = [most, 0]
  /**
   * Number of calls begun so far, and that number when `atOnce` was lowered last: calls made together lower it once.
   */
  let [begun, loweredAt] = [0, 0]

  function admit(): void {
    while (running < atOnce && waiting.length > 0) {
      running++
      waiting.shift()!()
    }
  }

  /** Resolves when the call may be made. A repeated call goes to the head of the queue. */
  const turn = (isRepeated: boolean) =>
    new Promise<void>(resolve => {
      if (isRepeated) waiting.unshift(resolve)
      else waiting.push(resolve)
      admit()
    })

  return async <R>(make: () => Promise<R>): Promise<R> => {
    for (let tried = 1; ; tried++) {
      await turn(tried > 1)
      const number = ++begun
      let isAgain = false
      try {
        const result = await make()
        atOnce = Math.min(most, atOnce + 1)
        return result
      } catch (thrown) {
        if (!isLate(thrown)) throw thrown
        if (number > loweredAt) {
          atOnce = Math.max(1, Math.floor(atOnce / 2))
          loweredAt = begun
        }
        if (tried === tries) throw thrown
        isAgain = true
      } finally {
        running--
        // A late call that is repeated first rejoins the queue, at its head (`turn`), which admits the next call.
        if (!isAgain) admit()
      }
    }
  }
}
