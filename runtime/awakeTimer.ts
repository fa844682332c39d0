/**
 * A timer that one block of the event loop cannot run out: it waits ten times in a row, a tenth of the time each.
 *
 * in   a time in ms, a function      out  the call of the function after that time; a function that cancels it
 * Invariant: one block of the event loop, however long, uses up at most a tenth of the time, and what ended during the
 * block is handled before the call. A single `setTimeout` could fire first after the block.
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
