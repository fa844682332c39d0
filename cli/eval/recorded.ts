/**
 * What a log holds of an evaluation that was begun before.
 *
 * in   a bus's address, a run        out  whether it was begun, and how it ended once it is over
 */
import type { EvaluationCompleted, RunFinished, RunStarted } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import { factsOf, openRecorded } from '../replay/recordedRun'

export type RecordedEvaluation =
  /** There is no such run, or it ended before it began. */
  | { readonly state: 'none' }
  | { readonly state: 'begun' }
  | {
      readonly state: 'over'
      readonly started: RunStarted
      readonly result: EvaluationCompleted
      readonly end: RunFinished
    }

/** A log in memory is gone with its process: there is none. */
export async function recordedEvaluation(bus: string, run: string): Promise<RecordedEvaluation> {
  if (bus.startsWith('memory:')) return { state: 'none' }
  const recorded = await openRecorded({ bus, run }).catch((error: unknown) => {
    if (error instanceof TroupeError && error.code === 'cli.no_run') return undefined
    throw error
  })
  if (recorded === undefined) return { state: 'none' }
  let [started, result, end]: [RunStarted?, EvaluationCompleted?, RunFinished?] = []
  try {
    const types = ['run.started', 'run.resumed', 'evaluation.completed', 'run.finished'] as const
    for (const fact of await factsOf(recorded, 'runs', types)) {
      if (fact.type === 'run.started') started ??= fact
      else if (fact.type === 'evaluation.completed') result = fact
      else end = fact.type === 'run.finished' ? fact : undefined
    }
  } finally {
    await recorded.close()
  }
  if (started === undefined) return { state: 'none' }
  if (end?.outcome !== 'done' || result === undefined) return { state: 'begun' }
  return { state: 'over', started, result, end }
}
