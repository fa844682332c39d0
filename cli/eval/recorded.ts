/**
 * Reads from the log how far an earlier evaluation came.
 *
 * in   a bus address, a run        out  its state: none, begun, or over with its result
 */
import { fence } from '../../actors/ownership/fencing'
import type { EvaluationCompleted, RunFinished, RunStarted } from '../../messages/facts'
import { openLog } from '../../replay/log/recordedRun'
import { TroupeError } from '../../runtime/errors'

export type RecordedEvaluation =
  /** No evaluation to resume: the run does not exist, or its log has no `run.started`. */
  | { readonly state: 'none' }
  | { readonly state: 'begun'; readonly started: RunStarted }
  | {
      readonly state: 'over'
      readonly started: RunStarted
      readonly result: EvaluationCompleted
      readonly end: RunFinished
    }

/**
 * Reads the state of a run's evaluation. It is `none` when no run is named, when the named run does not exist or has
 * recorded nothing, and on a bus in memory, whose log ends with its process.
 */
export async function recordedEvaluation(bus: string, run: string | undefined): Promise<RecordedEvaluation> {
  if (run === undefined || bus.startsWith('memory:')) return { state: 'none' }
  const recorded = await openLog({ bus, run }).catch((error: unknown) => {
    if (error instanceof TroupeError && error.code === 'run.not_found') return undefined
    throw error
  })
  if (recorded === undefined) return { state: 'none' }
  let started: RunStarted | undefined
  let result: EvaluationCompleted | undefined
  let end: RunFinished | undefined
  const counts = fence()
  try {
    await recorded.scan('runs', entry => {
      const { message } = entry
      if (!counts(entry)) return
      if (message.type === 'run.started') started ??= message
      else if (message.type === 'evaluation.completed') result = message
      else if (message.type === 'run.finished') end = message
      else if (message.type === 'run.resumed') end = undefined
    })
  } finally {
    await recorded.close()
  }
  if (started === undefined) return { state: 'none' }
  if (end?.outcome !== 'done' || result === undefined) return { state: 'begun', started }
  return { state: 'over', started, result, end }
}
