/**
 * A timer that counts only time in which the event loop runs.
 *
 * in   ms, what to call        out  the call, once they have passed; a function that cancels it
 * Invariant: however long the event loop is blocked at once, that counts as at most a tenth of the time, and what ended
 * meanwhile is handled before the call. A deadline of a `setTimeout` would be over first.
 */
const ticks = 10

export function afterAwake(ms: number, run: () => void): () => void {
  let left = ticks
  const tick = () => {
    left--
    if (left === 0) run()
    else timer = setTimeout(tick, ms / ticks)
  }
  let timer = setTimeout(tick, ms / ticks)
  return () => clearTimeout(timer)
}
