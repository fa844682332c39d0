/** Gives places to agents: at most `most` run at once, the others wait in their order. */
export interface Places {
  /** Resolves when the caller has a place, with the function that gives it back. @throws the signal's reason */
  take(signal: AbortSignal): Promise<() => void>
}

export function places(most: number): Places {
  let taken = 0
  const waiting = new Set<() => void>()
  const free = () => {
    const [next] = waiting
    if (next === undefined) taken--
    else next()
  }
  /** Makes the function that gives one place back; its second call does nothing. */
  const giveBack = () => {
    let isGiven = false
    return () => {
      if (isGiven) return
      isGiven = true
      free()
    }
  }
  return {
    async take(signal) {
      signal.throwIfAborted()
      if (taken < most) {
        taken++
        return giveBack()
      }
      await new Promise<void>((resolve, reject) => {
        const next = () => {
          waiting.delete(next)
          signal.removeEventListener('abort', onAbort)
          resolve()
        }
        const onAbort = () => {
          waiting.delete(next)
          reject(signal.reason)
        }
        waiting.add(next)
        signal.addEventListener('abort', onAbort, { once: true })
      })
      return giveBack()
    },
  }
}
