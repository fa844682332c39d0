/**
 * Waits for a partition whose reported end is below an offset that it is known to have had. The cause is a broker that
 * does not know yet that it lost its leadership, or a log that was truncated or created anew.
 *
 * in   the partition's bounds, polled every 250 ms      out  resolves once it reaches the offset; rejects after 5 s
 * Invariant: an end that is reported below the known offset is never taken for the end of the partition.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../effects'
import type { TroupeError } from '../errors'

export interface Bounds {
  readonly oldest: number
  readonly next: number
}

const timeoutMs = 5000
const pollMs = 250

/** Resolves when the partition's end has reached offset `to`; rejects with `tooShort` if it has not after 5 s. */
export async function awaitOffset(
  to: number,
  bounds: () => Promise<Bounds>,
  tooShort: (bounds: Bounds) => TroupeError,
): Promise<void> {
  for (const begun = systemEffects.elapsed(); ; ) {
    await sleep(pollMs)
    const found = await bounds()
    if (found.next >= to) return
    if (systemEffects.elapsed() - begun >= timeoutMs) throw tooShort(found)
  }
}
