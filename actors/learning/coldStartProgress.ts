/**
 * Records how far a cold start is: a fact for its first report, then for each further percent, or for a report that
 * comes 30 s or more after the latest fact.
 *
 * in   the trainer's reports, one for each optimizer update        out  stage.progressed
 * Invariant: a cold start writes at most 101 facts, plus one for each 30 s.
 */
import type { StageProgressed } from '../../messages/facts'
import type { Epoch } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { pendingAppends } from './pendingAppends'

/** Time after which a report is recorded although no further percent is done, ms. */
const recordedEveryMs = 30_000

export interface ProgressSink {
  readonly epoch: Epoch
  readonly append: (fact: StageProgressed) => Promise<void>
  readonly fx: Effects
}

/**
 * Returns `report`, which takes the share that is done (0 to 1) and the loss of the latest update, and `recorded`,
 * which resolves when every fact is in the log, and rejects if one could not be appended.
 */
export function recordProgress({ epoch, append, fx }: ProgressSink) {
  const facts = pendingAppends(append)
  let first: { readonly done: number; readonly at: number } | undefined
  let latest = { percent: -1, at: 0 }

  function report(done: number, loss: number): void {
    const at = fx.elapsed()
    first ??= { done, at }
    const percent = Math.floor(done * 100)
    if (percent === latest.percent && at - latest.at < recordedEveryMs) return
    latest = { percent, at }
    const [gained, seconds] = [done - first.done, (at - first.at) / 1000]
    const left = gained > 0 ? { leftSeconds: (seconds / gained) * (1 - done) } : {}
    void facts.append({ type: 'stage.progressed', at: fx.now(), stage: 'cold-start', done, loss, ...left, epoch })
  }

  return { report, recorded: facts.recorded }
}
