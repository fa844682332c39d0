/**
 * A timer that one block of the event loop cannot run out: it waits ten times in a row, a tenth of the time each.
 *
 * in   a time in ms, a function      out  the call of the function after that time; a function that cancels it
 * Invariant: one block of the event loop, however long, uses up at most a tenth of the time. Events that arrived during
 * the block are handled before the call, unless the block began in the last tenth. With a single `setTimeout`, the call
 * could come before these events.
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
