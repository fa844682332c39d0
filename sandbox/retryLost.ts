/**
 * Runs a call again whose zygote died while the call ran: the death says nothing about the code, unless it happens to
 * the same call every time.
 *
 * in   a call      out  its result; that of the third try if the zygote died at every one
 * Invariant: a call runs again only if its result says that its zygote died. The effects of its first run are lost with
 * the zygote: code at the levels `full` and `degraded` can change nothing that outlives its call.
 */
import { mostTries } from './retryKilled'
import type { RunResult } from './sandbox'

const zygoteDied = 'the zygote that ran the call died'

/** `reason` of a call that ran when its zygote died. */
export const zygoteDiedReason = (why: string): string => `${zygoteDied}: ${why}`

/** True if the call ended because its zygote died. */
export const isZygoteLost = ({ status, reason }: Pick<RunResult, 'status' | 'reason'>): boolean =>
  status === 'killed' && reason?.includes(zygoteDied) === true

export async function retryLost(run: () => Promise<RunResult>): Promise<RunResult> {
  for (let tries = 1; ; tries++) {
    const result = await run()
    if (tries === mostTries || !isZygoteLost(result)) return result
  }
}
