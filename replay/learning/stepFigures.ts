/**
 * Sums up the rollouts of each training step from the rows of a run's index, without reading the log.
 *
 * in   the index, a row for each trajectory        out  figures by step
 * Invariant: for a completed step without running rollouts, a figure that `runProgress` also computes has the same
 * value there, except that a mean over no values is null here and may be 0 there.
 */
import { errorRate } from '../../actors/curriculum/errorRate'
import { groupOf } from '../../messages/ids'
import type { IndexView } from '../trajectoryIndex/indexFile'

/** Figures of the rollouts of one step. Rates are shares of 1; null if the divisor would be 0. */
export interface StepFigures {
  readonly step: number
  readonly rollouts: number
  readonly running: number
  readonly failed: number
  /** Mean reward of the rollouts that have one, before any selection. */
  readonly reward: number | null
  /** Share of the rollouts with a reward whose reward is above `positiveAbove`. */
  readonly positiveShare: number | null
  readonly meanTokens: number | null
  readonly meanTurns: number | null
  readonly meanToolCalls: number | null
  readonly tokens: number
  readonly toolErrorRate: number | null
  readonly toolErrorRateInPositives: number | null
  readonly truncatedShare: number | null
  readonly groupsSelected: number
  readonly groupsRejected: number
  readonly kept: number
  /** Time of the first request, ms since 1970. */
  readonly firstAt: number
  /** Policy versions that sampled tokens of the step, ascending. */
  readonly versions: readonly number[]
}

interface Sums {
  ended: number
  truncated: number
  rollouts: number
  running: number
  failed: number
  judged: Calls[]
  positives: Calls[]
  reward: number
  tokens: number
  turns: number
  calls: number
  kept: number
  firstAt: number
  readonly selected: Set<string>
  readonly rejected: Set<string>
  readonly versions: Set<number>
}

interface Calls {
  readonly toolCalls: number
  readonly toolErrors: number
}

/** Returns the figures of every training step that has a rollout, in the order of the steps. */
export function stepFigures(index: IndexView, positiveAbove: number): readonly StepFigures[] {
  const steps = new Map<number, Sums>()
  for (let i = 0; i < index.size; i++) {
    const row = index.row(i)
    if (row.state === 'unasked' || row.state === 'unread' || row.purpose !== 'train') continue
    const sums = steps.get(row.step) ?? noSums()
    steps.set(row.step, sums)
    sums.rollouts++
    sums.firstAt = Math.min(sums.firstAt, row.at)
    if (row.selection === 'rejected') sums.rejected.add(groupOf(row.id))
    else if (row.selection !== null) sums.selected.add(groupOf(row.id))
    if (row.selection === 'kept') sums.kept++
    for (const version of row.versions) sums.versions.add(version)
    if (row.state === 'running') {
      sums.running++
      continue
    }
    sums.ended++
    sums.tokens += row.sampledTokens
    sums.turns += row.turns
    sums.calls += row.toolCalls
    if (row.state === 'truncated') sums.truncated++
    if (row.state === 'failed') sums.failed++
    if (row.reward === null) continue
    const calls = { toolCalls: row.toolCalls, toolErrors: row.toolErrors }
    sums.reward += row.reward
    sums.judged.push(calls)
    if (row.reward > positiveAbove) sums.positives.push(calls)
  }
  return [...steps].sort(([a], [b]) => a - b).map(([step, sums]) => figuresOf(step, sums))
}

const noSums = (): Sums => ({
  ...{ ended: 0, truncated: 0, rollouts: 0, running: 0, failed: 0, judged: [], positives: [], reward: 0 },
  ...{ tokens: 0, turns: 0, calls: 0, kept: 0, firstAt: Number.POSITIVE_INFINITY },
  ...{ selected: new Set(), rejected: new Set(), versions: new Set() },
})

const ratio = (part: number, whole: number): number | null => (whole === 0 ? null : part / whole)

function figuresOf(step: number, sums: Sums): StepFigures {
  const { rollouts, running, failed, tokens, kept, firstAt, judged, positives, ended } = sums
  return {
    ...{ step, rollouts, running, failed, tokens, kept, firstAt },
    reward: ratio(sums.reward, judged.length),
    positiveShare: ratio(positives.length, judged.length),
    meanTokens: ratio(tokens, ended),
    meanTurns: ratio(sums.turns, ended),
    meanToolCalls: ratio(sums.calls, ended),
    toolErrorRate: errorRate(judged),
    toolErrorRateInPositives: errorRate(positives),
    truncatedShare: ratio(sums.truncated, ended),
    groupsSelected: sums.selected.size,
    groupsRejected: sums.rejected.size,
    versions: [...sums.versions].sort((a, b) => a - b),
  }
}
