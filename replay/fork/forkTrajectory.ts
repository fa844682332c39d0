/**
 * Forks a trajectory: plans the forks, runs them live in a run of their own, and reads how each ended.
 *
 * in   the log of the parent's run, a trajectory, what its forks change
 * out  the plan and the result of every fork
 * Invariant: the parent's log is closed before the run of the forks opens, and is never written.
 */
import { checkNewRun, openNewRun } from '../../runtime/openRun'
import { type OpenLogOptions, openLog } from '../log/recordedRun'
import { type ChangedCell, changedCells } from './changedCells'
import { type ForkResult, forkResults } from './forkResults'
import { type ForkOptions, type ForkPlan, planForks } from './planForks'
import { runForks } from './runForks'

export interface ForkObserver {
  /**
   * Receives the plan before any fork starts, with the notebook cells whose output now differs from the recorded one:
   * the forks' notebook has the state of the new run of these cells, while the model is shown the recorded output.
   */
  readonly onPlanned?: (plan: ForkPlan, changed: readonly ChangedCell[]) => void
  /** Receives the number of forks that have ended, and the number of all forks. */
  readonly onEnded?: (ended: number, all: number) => void
  /**
   * Aborting the signal ends the forks early; its reason, as text, becomes the reason of `run.finished`. The results
   * then list as `running` the forks that had not ended. If the signal is aborted before the forks' run is opened, the
   * call rejects with the signal's reason.
   */
  readonly signal?: AbortSignal
}

export interface ForkedTrajectory {
  readonly plan: ForkPlan
  readonly results: readonly ForkResult[]
}

/**
 * Forks the trajectory that `asked` names: its id, or a part that only one trajectory's id has. The forks are a new run
 * named `plan.run` on the same bus, which every replay function can open.
 * @throws TroupeError run.exists and run.bad_name for `options.as`; the errors of `planForks` and `runForks`
 */
export async function forkTrajectory(
  log: OpenLogOptions,
  asked: string,
  options: ForkOptions,
  observer: ForkObserver = {},
): Promise<ForkedTrajectory> {
  if (options.as !== undefined) checkNewRun(log.bus, options.as)
  const recorded = await openLog(log)
  const plan = await planForks(recorded, asked, options).finally(() => recorded.close())
  observer.onPlanned?.(plan, await changedCells(plan.parent, Math.max(...plan.turns), plan.code))
  observer.signal?.throwIfAborted()
  const context = await openNewRun(log.bus, plan.run, log.dir)
  try {
    const { code, parts, started: parent } = plan
    const { signal, onEnded = () => {} } = observer
    await runForks({ context, code, parts, parent, stopped: aborted(signal), onEnded })
  } finally {
    await context.bus.close()
  }
  const { bus, dir, onNotice } = log
  const where = { bus, run: plan.run, ...(dir === undefined ? {} : { dir }) }
  const forks = await openLog({ ...where, ...(onNotice === undefined ? {} : { onNotice }) })
  return { plan, results: await forkResults(forks).finally(() => forks.close()) }
}

/** Resolves with the signal's reason, as text, once the signal is aborted; without a signal it never resolves. */
function aborted(signal: AbortSignal | undefined): Promise<string> {
  return new Promise(resolve => {
    if (signal?.aborted) resolve(String(signal.reason))
    signal?.addEventListener('abort', () => resolve(String(signal.reason)), { once: true })
  })
}
