/**
 * What a log holds of an arm that was begun before.
 *
 * in   a bus's address, a run        out  whether it was begun; once it is over, its steps and its summary, as --json prints them
 * Invariant: its seconds are those of the processes that ran it, each from its start to its last fact, not what lay between.
 */
import { fence } from '../../actors/ownership/fencing'
import type { Fact, RunFinished } from '../../messages/facts'
import { progress, type StepReport, summaryOf } from '../../replay/learning/progress'
import { configOf } from '../../replay/log/recordedConfig'
import type { RecordedRun } from '../../replay/log/recordedRun'
import { TroupeError } from '../../runtime/errors'
import { openRecorded } from '../replay/runOptions'

export type RecordedArm =
  /** There is no such run, or it ended before it began. */
  | { readonly state: 'none' }
  | { readonly state: 'begun' }
  | {
      readonly state: 'over'
      readonly steps: readonly StepReport[]
      readonly summary: ReturnType<typeof summaryOf>
    }

interface Part {
  readonly begunAt: number
  lastAt: number
}

export async function recordedArm(bus: string, run: string): Promise<RecordedArm> {
  const recorded = await openRecorded({ bus, run }).catch((error: unknown) => {
    if (error instanceof TroupeError && (error.code === 'cli.no_run' || error.code === 'bus.not_a_log'))
      return undefined
    throw error
  })
  if (recorded === undefined) return { state: 'none' }
  try {
    const parts = await partsOf(recorded)
    return parts.length === 0 ? { state: 'none' } : await folded(recorded, run, parts)
  } finally {
    await recorded.close()
  }
}

/** The processes that ran it, the latest first. */
async function partsOf(recorded: RecordedRun): Promise<readonly Part[]> {
  const parts: Part[] = []
  await recorded.scan('runs', ({ message }) => {
    if (message.type !== 'run.started' && message.type !== 'run.resumed') return
    parts.unshift({ begunAt: message.at, lastAt: message.at })
  })
  return parts
}

/** Rollouts first: the end of a step reports what is known of them by then. */
async function folded(recorded: RecordedRun, run: string, parts: readonly Part[]): Promise<RecordedArm> {
  const state = progress((await configOf(recorded)).selection)
  const counts = fence()
  let end: RunFinished | undefined
  for (const topic of ['trajectories', 'runs', 'learner'] as const) {
    await recorded.scan(topic, entry => {
      if (!counts(entry)) return
      const message = entry.message as Fact
      const part = parts.find(({ begunAt }) => message.at >= begunAt)
      if (part !== undefined) part.lastAt = Math.max(part.lastAt, message.at)
      if (message.type === 'run.finished') end = message
      else if (message.type === 'run.resumed') end = undefined
      state.take(message)
    })
  }
  if (end === undefined || end.outcome === 'failed') return { state: 'begun' }
  const seconds = parts.reduce((sum, { begunAt, lastAt }) => sum + (lastAt - begunAt) / 1000, 0)
  return { state: 'over', steps: state.steps, summary: summaryOf(state, run, end.outcome, end.reason, seconds) }
}
