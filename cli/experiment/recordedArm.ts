/**
 * Reads from the log how far an earlier run of an experiment's arm (variant) came.
 *
 * in   a bus address, a run    out  its state: none, begun, or over with its steps and summary, as --json prints them
 * Invariant: a run whose last outcome is `failed` counts as begun. The summary's seconds are the sum over the processes
 * that ran the arm, each from its start to its last fact. Time between two processes does not count.
 */
import { fence } from '../../actors/ownership/fencing'
import type { Fact, RunFinished } from '../../messages/facts'
import { progress, type StepReport, summaryOf } from '../../replay/learning/progress'
import { configOf } from '../../replay/log/recordedConfig'
import { openLog, type RecordedRun } from '../../replay/log/recordedRun'
import { TroupeError } from '../../runtime/errors'

export type RecordedArm =
  /** No run to resume: the run does not exist, or its log has no `run.started`. */
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
  const recorded = await openLog({ bus, run }).catch((error: unknown) => {
    if (error instanceof TroupeError && (error.code === 'run.not_found' || error.code === 'bus.not_a_log'))
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

/** Processes that ran the arm, the latest first. */
async function partsOf(recorded: RecordedRun): Promise<readonly Part[]> {
  const parts: Part[] = []
  await recorded.scan('runs', ({ message }) => {
    if (message.type !== 'run.started' && message.type !== 'run.resumed') return
    parts.unshift({ begunAt: message.at, lastAt: message.at })
  })
  return parts
}

/**
 * Reduces the log to steps and a summary. Trajectories are read first, because the report of a step covers the rollouts
 * that were read before it.
 */
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
