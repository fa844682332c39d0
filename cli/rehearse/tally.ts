/**
 * Counts what happened in a rehearsal, from its facts.
 *
 * in   the run's facts, in the order of their partitions
 * out  numbers of rollouts, losses by reason, deadlines, refills, filtered groups, stages, checkpoints, publications;
 *      simulated seconds of each step's generation and of each evaluation
 * Invariant: every requested rollout is rewarded, lost or open. A rollout is lost if a fault of the run ended it: its
 * group was closed before it ended, an engine or tool failed, or its reward could not be computed.
 */
import type { Fact } from '../../messages/facts'
import { type GroupId, groupOf } from '../../messages/ids'

export interface Phase {
  /** Step whose rollouts the phase generates; for an evaluation or measurement, the step before it. */
  readonly step: number
  readonly kind: 'train' | 'eval'
  readonly rollouts: number
  readonly meanTokens: number
  readonly meanTurns: number
  /** Simulated seconds from the first request to the last reward. */
  readonly seconds: number
}

export interface Tallied {
  readonly rollouts: {
    readonly requested: number
    readonly rewarded: number
    readonly truncated: number
    readonly lost: number
    readonly open: number
    /** Numbers of lost rollouts by reason. */
    readonly lostBecause: Readonly<Record<string, number>>
  }
  readonly turns: {
    readonly asked: number
    readonly askedAgain: number
    readonly completed: number
    readonly interrupted: number
  }
  readonly toolCalls: { readonly completed: number; readonly failed: number }
  readonly groups: {
    readonly closed: number
    readonly closedByDeadline: number
    readonly selected: number
    /** Numbers of filtered (rejected) groups by reason. */
    readonly filtered: Readonly<Record<string, number>>
    /** Groups requested beyond `groupsPerStep`, in place of filtered ones; the sum over the training steps. */
    readonly refilled: number
  }
  readonly steps: { readonly completed: number; readonly rejected: number }
  readonly stages: readonly string[]
  readonly evaluations: number
  readonly measurements: number
  readonly checkpoints: number
  readonly publications: number
  readonly weightUpdates: number
  readonly enginesLeft: Readonly<Record<string, number>>
  readonly alarms: Readonly<Record<string, number>>
  readonly refused: number
  readonly phases: readonly Phase[]
}

interface OpenPhase {
  readonly step: number
  readonly kind: Phase['kind']
  readonly firstAt: number
  lastAt: number
  rollouts: number
  tokens: number
  turns: number
}

export function tallyRehearsal(groupsPerStep: number): { take(fact: Fact): void; result(): Tallied } {
  const open = new Map<string, 'asked' | 'ended'>()
  const phaseOf = new Map<GroupId, OpenPhase>()
  const phases = new Map<string, OpenPhase>()
  const drawn = new Map<number, Set<GroupId>>()
  const lostBecause: Record<string, number> = {}
  const filtered: Record<string, number> = {}
  const enginesLeft: Record<string, number> = {}
  const alarms: Record<string, number> = {}
  const stages: string[] = []
  const n = {
    ...{
      requested: 0,
      rewarded: 0,
      truncated: 0,
      turns: 0,
      again: 0,
      completed: 0,
      interrupted: 0,
      calls: 0,
      failed: 0,
    },
    ...{ closed: 0, deadline: 0, selected: 0, steps: 0, rejected: 0, evaluations: 0, measurements: 0, checkpoints: 0 },
    ...{ publications: 0, updates: 0, refused: 0 },
  }
  const add = (to: Record<string, number>, reason: string) => {
    to[reason] = (to[reason] ?? 0) + 1
  }
  const lose = (trajectory: string, reason: string) => {
    if (open.delete(trajectory)) add(lostBecause, reason)
  }

  function take(fact: Fact): void {
    switch (fact.type) {
      case 'rollout.requested': {
        if (open.has(fact.trajectory)) return
        open.set(fact.trajectory, 'asked')
        n.requested++
        const kind = fact.purpose === 'train' ? 'train' : 'eval'
        const key = `${kind} ${fact.step}`
        const phase = phases.get(key) ?? {
          step: fact.step,
          kind,
          firstAt: fact.at,
          lastAt: fact.at,
          rollouts: 0,
          tokens: 0,
          turns: 0,
        }
        phases.set(key, phase)
        phaseOf.set(fact.group, phase)
        if (kind === 'train') drawn.set(fact.step, (drawn.get(fact.step) ?? new Set()).add(fact.group))
        return
      }
      case 'turn.asked':
        n.turns++
        if (fact.attempt > 0) n.again++
        return
      case 'turn.completed':
        n.completed++
        return
      case 'turn.interrupted':
        n.interrupted++
        return
      case 'tool.completed':
        n.calls++
        if (fact.status !== 'ok') n.failed++
        return
      case 'rollout.finished': {
        const phase = phaseOf.get(groupOf(fact.trajectory))
        if (phase !== undefined && open.get(fact.trajectory) === 'asked') {
          phase.rollouts++
          phase.tokens += fact.sampledTokens
          phase.turns += fact.turns
        }
        if (fact.outcome === 'failed') lose(fact.trajectory, fact.reason)
        else if (open.has(fact.trajectory)) {
          open.set(fact.trajectory, 'ended')
          if (fact.outcome === 'truncated') n.truncated++
        }
        return
      }
      case 'reward.assigned': {
        if (open.delete(fact.trajectory)) n.rewarded++
        const phase = phaseOf.get(groupOf(fact.trajectory))
        if (phase !== undefined) phase.lastAt = Math.max(phase.lastAt, fact.at)
        return
      }
      case 'reward.failed':
        lose(fact.trajectory, 'no reward')
        return
      case 'group.closed':
        n.closed++
        if (fact.reason === 'deadline') n.deadline++
        return
      case 'group.selected':
        n.selected++
        return
      case 'group.rejected':
        add(filtered, fact.reason)
        return
      case 'step.completed':
        n.steps++
        return
      case 'step.rejected':
        n.rejected++
        return
      case 'stage.changed':
        stages.push(fact.stage)
        return
      case 'evaluation.completed':
        n.evaluations++
        return
      case 'tasks.measured':
        n.measurements++
        return
      case 'checkpoint.saved':
        if (fact.updates === undefined) n.checkpoints++
        return
      case 'weights.published':
        n.publications++
        return
      case 'weights.applied':
        n.updates++
        return
      case 'engine.left':
        add(enginesLeft, fact.reason)
        return
      case 'alarm.raised':
        add(alarms, fact.alarm)
        return
      case 'record.refused':
        n.refused++
    }
  }

  return {
    take,
    result() {
      const lost = Object.values(lostBecause).reduce((sum, count) => sum + count, 0)
      const refilled = [...drawn.values()].reduce((sum, groups) => sum + Math.max(0, groups.size - groupsPerStep), 0)
      return {
        rollouts: {
          ...{ requested: n.requested, rewarded: n.rewarded, truncated: n.truncated, lost, open: open.size },
          lostBecause,
        },
        turns: { asked: n.turns, askedAgain: n.again, completed: n.completed, interrupted: n.interrupted },
        toolCalls: { completed: n.calls, failed: n.failed },
        groups: { closed: n.closed, closedByDeadline: n.deadline, selected: n.selected, filtered, refilled },
        steps: { completed: n.steps, rejected: n.rejected },
        ...{ stages, evaluations: n.evaluations, measurements: n.measurements, checkpoints: n.checkpoints },
        ...{ publications: n.publications, weightUpdates: n.updates, enginesLeft, alarms, refused: n.refused },
        phases: [...phases.values()].map(({ step, kind, firstAt, lastAt, rollouts, tokens, turns }) => ({
          ...{ step, kind, rollouts, seconds: (lastAt - firstAt) / 1000 },
          ...{ meanTokens: tokens / Math.max(1, rollouts), meanTurns: turns / Math.max(1, rollouts) },
        })),
      }
    },
  }
}
