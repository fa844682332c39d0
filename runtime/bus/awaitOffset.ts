/**
 * A partition that ends before an offset which it is known to have had: a broker that led until now and has not heard yet
 * that it does no longer, or a log that was cut short or made anew.
 *
 * in   where the partition ends, asked again and again      out  that it reaches so far, or an error
 * Invariant: it is waited for as long as brokers take to hear of one another, and never taken for the end of what there is.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { systemEffects } from '../effects'
import type { TroupeError } from '../errors'

export interface Bounds {
  readonly oldest: number
  readonly next: number
}

const shortMs = 5000
const askEveryMs = 250

/** Resolves when the partition holds everything before `to`; rejects with `tooShort` when it goes on ending before that. */
export async function awaitOffset(
  to: number,
  bounds: () => Promise<Bounds>,
  tooShort: (bounds: Bounds) => TroupeError,
): Promise<void> {
  for (const begun = systemEffects.elapsed(); ; ) {
    await sleep(askEveryMs)
    const found = await bounds()
    if (found.next >= to) return
    if (systemEffects.elapsed() - begun >= shortMs) throw tooShort(found)
  }
}
