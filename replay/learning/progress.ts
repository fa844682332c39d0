/**
 * Folds a run's facts into progress metrics, step by step. The fold reads no clock, only the times in the facts. In a
 * live run, a step's report covers the rollouts that had ended when the step completed; from a log that is read topic
 * by topic, it also covers those that ended later.
 *
 * in   a run's facts and engine statuses        out  a report for each completed step and evaluation, and the summary
 */
import { errorRate } from '../../actors/curriculum/errorRate'
import type { EngineTelemetry } from '../../messages/commands'
import type { EvaluationCompleted, Fact, StepCompleted } from '../../messages/facts'
import { groupOf, type TrajectoryId } from '../../messages/ids'
import { type Score, scored } from './evaluationScore'

/** Metrics of one step, as printed in a line of `train --json`. Error rates and shares are from 0 to 1. */
export interface StepReport {
  readonly type: 'step'
  readonly step: number
  readonly version: number
  /** Mean reward of the step's finished rollouts that have a reward, before any selection; 0 when none has one. */
  readonly passAt1: number
  /**
   * Failed tool calls as a share of all calls, in rollouts with a reward above selection.positiveAbove; null when these
   * rollouts made no call.
   */
  readonly toolErrorRateInPositives: number | null
  readonly toolErrorRate: number | null
  /** Mean number of sampled tokens of a finished rollout. */
  readonly meanTokens: number
  readonly meanTurns: number
  readonly truncatedShare: number
  readonly failedRollouts: number
  /** Number of rollouts without a reward because the judge raised, hung or refused. */
  readonly failedRewards: number
  readonly rollouts: number
  readonly groupsSelected: number
  readonly groupsRejected: number
  readonly rolloutTokensPerSecond: number
  readonly rolloutSeconds: number
  readonly trainSeconds: number
  readonly stepSeconds: number
  readonly metrics: Readonly<Record<string, number>>
}

interface Tally {
  readonly members: Map<
    TrajectoryId,
    {
      tokens: number
      turns: number
      toolCalls: number
      toolErrors: number
      truncated: boolean
      failed: boolean
      unjudged: boolean
      reward: number | null
    }
  >
  selected: number
  rejected: number
  firstAt: number
  lastAt: number
  trainedAt: number
}

export interface Progress {
  take(message: Fact | EngineTelemetry): StepReport | EvaluationCompleted | undefined
  readonly steps: readonly StepReport[]
  readonly evaluations: readonly EvaluationCompleted[]
  /**
   * Numbers of rollouts that were requested and that finished since the latest `step.started` or
   * `evaluation.completed`; and the used share of the KV cache (0 to 1) in the latest engine status.
   */
  readonly running: { readonly asked: number; readonly finished: number; readonly kvShare: number }
}

const ratio = (part: number, whole: number) => (whole === 0 ? 0 : part / whole)
const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0)

/**
 * Creates the fold. `positiveAbove`: rollouts with a reward above it are the positives of `toolErrorRateInPositives`.
 * `onlyEnds`: keeps only the first and the latest step and evaluation, so that a run of months does not fill the
 * memory.
 */
export function progress({ positiveAbove = 0, onlyEnds = false } = {}): Progress {
  const tallies = new Map<number, Tally>()
  const stepOf = new Map<string, number>()
  const steps: StepReport[] = []
  const evaluations: EvaluationCompleted[] = []
  let asked = 0
  let finished = 0
  let kvShare = 0

  function tallyOf(step: number): Tally {
    let tally = tallies.get(step)
    if (tally === undefined) {
      tally = { members: new Map(), selected: 0, rejected: 0, firstAt: 0, lastAt: 0, trainedAt: 0 }
      tallies.set(step, tally)
    }
    return tally
  }

  function report(fact: StepCompleted): StepReport {
    const tally = tallyOf(fact.step)
    const members = [...tally.members.values()]
    const judged = members.filter(m => m.reward !== null)
    const positives = judged.filter(m => m.reward! > positiveAbove)
    const rolloutSeconds = (tally.lastAt - tally.firstAt) / 1000
    const tokens = sum(members.map(m => m.tokens))
    for (const step of tallies.keys()) if (step <= fact.step) tallies.delete(step)
    for (const [group, step] of stepOf) if (step <= fact.step) stepOf.delete(group)
    return {
      type: 'step',
      step: fact.step,
      version: fact.version,
      passAt1: ratio(sum(judged.map(m => m.reward!)), judged.length),
      toolErrorRateInPositives: errorRate(positives),
      toolErrorRate: errorRate(judged),
      meanTokens: ratio(tokens, members.length),
      meanTurns: ratio(sum(members.map(m => m.turns)), members.length),
      truncatedShare: ratio(members.filter(m => m.truncated).length, members.length),
      failedRollouts: members.filter(m => m.failed).length,
      failedRewards: members.filter(m => m.unjudged).length,
      rollouts: members.length,
      groupsSelected: tally.selected,
      groupsRejected: tally.rejected,
      rolloutTokensPerSecond: ratio(tokens, rolloutSeconds),
      rolloutSeconds,
      trainSeconds: (fact.at - tally.trainedAt) / 1000,
      stepSeconds: (fact.at - tally.firstAt) / 1000,
      metrics: fact.metrics,
    }
  }

  return {
    steps,
    evaluations,
    get running() {
      return { asked, finished, kvShare }
    },
    take(message) {
      switch (message.type) {
        case 'engine.status':
          kvShare = ratio(message.referencedTokens, message.kvTokens)
          return undefined
        case 'rollout.requested': {
          asked++
          if (message.purpose !== 'train') return undefined
          stepOf.set(message.group, message.step)
          const tally = tallyOf(message.step)
          if (tally.firstAt === 0) tally.firstAt = message.at
          return undefined
        }
        case 'rollout.finished': {
          finished++
          const step = stepOf.get(groupOf(message.trajectory))
          if (step === undefined) return undefined
          const tally = tallyOf(step)
          tally.lastAt = message.at
          if (tally.members.has(message.trajectory)) return undefined
          tally.members.set(message.trajectory, {
            tokens: message.sampledTokens,
            turns: message.turns,
            toolCalls: message.toolCalls,
            toolErrors: message.toolErrors,
            truncated: message.outcome === 'truncated',
            failed: message.outcome === 'failed',
            unjudged: false,
            reward: null,
          })
          return undefined
        }
        case 'reward.assigned': {
          const step = stepOf.get(groupOf(message.trajectory))
          const member = step === undefined ? undefined : tallyOf(step).members.get(message.trajectory)
          if (member === undefined) return undefined
          member.reward = message.reward
          member.unjudged = false
          return undefined
        }
        case 'reward.failed': {
          const step = stepOf.get(groupOf(message.trajectory))
          const member = step === undefined ? undefined : tallyOf(step).members.get(message.trajectory)
          if (member !== undefined && member.reward === null) member.unjudged = true
          return undefined
        }
        case 'group.selected':
          tallyOf(message.step).selected++
          return undefined
        case 'group.rejected':
          tallyOf(message.step).rejected++
          return undefined
        case 'step.started':
          tallyOf(message.step).trainedAt = message.at
          asked = 0
          finished = 0
          return undefined
        case 'step.completed': {
          if (message.step <= (steps.at(-1)?.step ?? -1)) return undefined
          const done = report(message)
          steps.push(done)
          if (onlyEnds) steps.splice(1, steps.length - 2)
          return done
        }
        case 'evaluation.completed':
          evaluations.push(message)
          if (onlyEnds) evaluations.splice(1, evaluations.length - 2)
          asked = 0
          finished = 0
          return message
        default:
          return undefined
      }
    },
  }
}

const briefly = (e: EvaluationCompleted | undefined): Score | null => (e === undefined ? null : scored(e))

/** Returns the run's summary, the last line of `train --json`. */
export function summaryOf(progress: Progress, run: string, outcome: string, reason: string, wallSeconds: number) {
  return {
    type: 'summary' as const,
    run,
    outcome,
    reason,
    steps: progress.steps.at(-1)?.step ?? 0,
    evalBefore: briefly(progress.evaluations.find(e => e.step === 0)),
    evalAfter: briefly(progress.evaluations.findLast(e => e.step > 0)),
    toolErrorsInPositives: {
      first: progress.steps[0]?.toolErrorRateInPositives ?? null,
      last: progress.steps.at(-1)?.toolErrorRateInPositives ?? null,
    },
    wallSeconds,
  }
}
