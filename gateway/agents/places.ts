/** Limits the number of concurrent agents: at most `most` hold a place, the others wait in the order of their calls. */
export interface Places {
  /** Waits for a free place. Resolves with the function that frees it again. @throws the signal's reason */
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
  /** Makes the function that frees one place; its second call does nothing. */
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
