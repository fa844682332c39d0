/** Fencing: what an owner says after another has claimed its partition is not heard. */
import { curriculum } from '../../../actors/curriculum/curriculum'
import { evaluator } from '../../../actors/curriculum/evaluator'
import { learner } from '../../../actors/learning/learner'
import { fenced } from '../../../actors/ownership/fencing'
import type { Fact, GroupSelected, StepStarted } from '../../../messages/facts'
import { epoch, groupId, policyVersion, runId, trajectoryId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import type { Behaviour } from '../../../runtime/host/behaviour'
import { requested } from '../../support/facts'

interface Placed {
  readonly topic: 'trajectories' | 'learner' | 'runs'
  readonly partition?: number
  readonly fact: Fact
}

/** Folds facts as they stand on their partitions, each with an offset of its own there. */
function fold<S>(behaviour: Behaviour<S, never, unknown>, facts: readonly Placed[]): S {
  const next = new Map<string, number>()
  return facts.reduce((state, { topic, partition = 0, fact }) => {
    const place = `${topic}#${partition}`
    const offset = next.get(place) ?? 0
    next.set(place, offset + 1)
    return behaviour.evolve(state, fact, { topic, partition, offset })
  }, behaviour.initial())
}

const plan = { groupsPerStep: 1, refillShare: 0, steps: 3 }
const group = groupId('s0001.0000')
const claim = (owner: string): Placed => ({ topic: 'learner', fact: { type: 'learner.claimed', at: 0, owner } })
const published = (version: number, at?: number): Placed => ({
  topic: 'learner',
  fact: {
    ...{
      type: 'weights.published',
      at: 0,
      version: policyVersion(version),
      step: version,
      url: '',
      digest: '',
      bytes: 0,
    },
    ...(at === undefined ? {} : { epoch: epoch(at) }),
  },
})
const saved = (step: number, at: number): Placed => ({
  topic: 'learner',
  fact: {
    ...{ type: 'checkpoint.saved', at: 0, step, version: policyVersion(step), name: `step-${step}`, digest: '' },
    epoch: epoch(at),
  },
})
const started = (step: number, at: number): Placed => {
  const trajectories = [trajectoryId(group, 0)]
  const fact: StepStarted = {
    ...{ type: 'step.started', at: 0, step, epoch: epoch(at), baseVersion: policyVersion(0), baseCheckpoint: 'step-0' },
    trajectories,
  }
  return { topic: 'learner', fact }
}
const completed = (step: number, at: number): Placed => ({
  topic: 'learner',
  fact: { type: 'step.completed', at: 0, step, epoch: epoch(at), version: policyVersion(step), metrics: { loss: 1 } },
})
const selected = (at: number, partition: number): Placed => {
  const how = { selection: 'paper', generator: 'g', seed: 1, whole: true, dropped: [] } as const
  const kept = [{ member: 0, reward: 1, advantage: 1, penalty: 0 }]
  const fact: GroupSelected = { type: 'group.selected', at: 0, group, epoch: epoch(at), step: 1, ...how, kept }
  return { topic: 'trajectories', partition, fact }
}
const owns = (partition: number, owner: string): Placed => ({
  topic: 'trajectories',
  partition,
  fact: { type: 'partition.claimed', at: 0, partition, owner },
})
const drawn: Placed = {
  topic: 'runs',
  fact: { type: 'curriculum.advanced', at: 0, step: 1, purpose: 'train', groups: [group], cursor: 1, order: 4 },
}
const fx = manualEffects(0)

test('a learner that was replaced completes no step, publishes no weights and saves no checkpoint any more', () => {
  const behaviour = fenced(learner(plan))
  const before = [
    owns(0, 'a'),
    { topic: 'trajectories', fact: requested(group, 0) },
    selected(0, 0),
    drawn,
    claim('first'),
    saved(0, 0),
    published(0, 0),
    started(1, 0),
    claim('second'), // offset 4
  ] as const
  const state = fold(behaviour, before)
  const zombie = fold(behaviour, [...before, saved(1, 0), published(1, 0), completed(1, 0), started(2, 0)])
  expect(zombie).toEqual(state)
  // What was started before the claim is finished by the second, under its own epoch.
  expect(behaviour.pending(state, fx).requests).toMatchObject([
    { kind: 'train', epoch: 4, batch: { started: { step: 1 } } },
  ])
  const after = fold(behaviour, [...before, saved(1, 4), published(1, 4), completed(1, 4)])
  expect(after.inner).toMatchObject({ done: 1, published: 1, checkpoint: { step: 1 } })
})

test('weights from before learners took turns, which name no epoch, count', () => {
  expect(fold(fenced(learner(plan)), [claim('first'), published(3)]).inner.published).toBe(3)
})

test('a decision counts under the latest claim of its own partition, whatever the others have', () => {
  const rest = { learns: true, maxStaleness: 0, maxRejectedSteps: 3, evaluation: { problems: 0, every: 0 } }
  const behaviour = fenced(curriculum({ run: runId('r'), ...plan, ...rest }))
  const chosen = (facts: readonly Placed[]) => [
    ...(fold(behaviour, [drawn, ...facts]).inner.drawn.get(1)?.selected ?? []),
  ]
  expect(chosen([owns(0, 'a'), owns(0, 'b'), owns(0, 'c'), owns(1, 'd'), selected(0, 1)])).toEqual([group])
  expect(chosen([owns(1, 'a'), owns(1, 'b'), selected(0, 1)])).toEqual([])
  expect(chosen([owns(1, 'a'), owns(1, 'b'), selected(0, 1), selected(1, 1)])).toEqual([group])
})

const drawsClaimed = (at: number): Placed => ({
  topic: 'runs',
  fact: { type: 'draws.claimed', at: 0, owner: `o${at}`, learnerEpoch: epoch(at) },
})
const watching = { learns: true, maxStaleness: 0, maxRejectedSteps: 3, evaluation: { problems: 1, every: 1 } }
const watched = {
  ...{ run: runId('r'), ...plan, ...watching },
  alarms: [{ name: 'slow', metric: 'meanTokens', above: 1, for: 1, stop: true }],
}

test('a result, a tally, an alarm and an end that a replaced learner says late are not heard', () => {
  const learnerEpoch = epoch(3)
  const said: readonly Fact[] = [
    {
      ...{ type: 'evaluation.completed', at: 0, name: 'held-out', step: 0, version: policyVersion(0), passAt1: 1 },
      ...{ standardError: 0, n: 1, samples: 1, metrics: {}, learnerEpoch },
    },
    { type: 'step.tallied', at: 0, step: 1, metrics: { meanTokens: 9 }, learnerEpoch },
    { type: 'tasks.measured', at: 0, stage: 's', index: 0, from: 0, samples: 1, solved: [1], learnerEpoch },
    { type: 'alarm.raised', at: 0, alarm: 'slow', message: '', learnerEpoch },
    {
      ...{ type: 'run.finished', at: 0, run: runId('r'), outcome: 'done', reason: '', steps: 3, summary: {} },
      learnerEpoch,
    },
  ]
  const late = said.map((fact): Placed => ({ topic: 'runs', fact }))
  const behaviour = fenced(curriculum(watched), epoch(8))
  const before = fold(behaviour, [drawsClaimed(3), drawsClaimed(8)])
  expect(fold(behaviour, [drawsClaimed(3), drawsClaimed(8), ...late])).toEqual(before)
  // In time it counts, as what the one before it said does.
  expect(fold(behaviour, [drawsClaimed(3), ...late, drawsClaimed(8)]).inner.finished).toBe(true)
})

test('a stage that a replaced learner changes late has not begun', () => {
  const stages = [{ name: 's', resetOptimizer: true, updateReference: false }]
  const behaviour = fenced(curriculum({ ...watched, alarms: [], stages }))
  const change = (at: number): Placed => ({
    topic: 'learner',
    fact: { type: 'stage.changed', at: 0, stage: 's', step: 0, reason: '', index: 0, epoch: epoch(at) },
  })
  const claims = [claim('a'), claim('b')]
  expect(fold(behaviour, [...claims, change(0)]).inner.stages.index).toBe(-1)
  expect(fold(behaviour, [...claims, change(1)]).inner.stages.index).toBe(0)
})

test('what curriculum and evaluator say names the claim that they say it under', () => {
  const own = epoch(4)
  const ending = fenced(curriculum({ ...watched, alarms: [], evaluation: { problems: 0, every: 0 }, steps: 0 }), own)
  expect(ending.pending(fold(ending, [published(0)]), fx).facts).toMatchObject([
    { type: 'run.finished', learnerEpoch: 4 },
  ])
  const staged = fenced(
    curriculum({ ...watched, stages: [{ name: 's', resetOptimizer: false, updateReference: false }], alarms: [] }),
    own,
  )
  const asked: Placed = {
    topic: 'runs',
    fact: {
      ...{ type: 'evaluation.completed', at: 0, name: 'held-out', step: 0, version: policyVersion(0), passAt1: 1 },
      ...{ standardError: 0, n: 1, samples: 1, metrics: {} },
    },
  }
  expect(staged.pending(fold(staged, [published(0), asked]), fx).facts).toMatchObject([
    { type: 'stage.changed', epoch: 4 },
  ])
  const evaluating = fenced(evaluator(), own)
  const group = groupId('e0000.0000')
  const facts: readonly Placed[] = [
    {
      topic: 'runs',
      fact: { type: 'curriculum.advanced', at: 0, step: 0, purpose: 'eval', groups: [group], cursor: 1, order: 1 },
    },
    {
      topic: 'trajectories',
      fact: { type: 'group.closed', at: 0, group, epoch: epoch(0), reason: 'deadline', rewarded: [] },
    },
  ]
  expect(evaluating.pending(fold(evaluating, facts), fx).facts).toMatchObject([
    { type: 'evaluation.completed', learnerEpoch: 4 },
  ])
})

test('a learner that reads that another has claimed says nothing more, least of all under the claim of the other', () => {
  const facts = [
    claim('first'),
    { topic: 'trajectories', fact: requested(group, 0) },
    selected(0, 0),
    drawn,
    saved(0, 0),
    published(0, 0),
  ] as const
  const behaviour = fenced(learner(plan), epoch(0))
  expect(behaviour.pending(fold(behaviour, facts), fx).facts).toMatchObject([{ type: 'step.started', epoch: 0 }])
  const after = fold(behaviour, [...facts, claim('second')])
  expect(behaviour.pending(after, fx)).toMatchObject({ facts: [], commands: [] })
  expect(behaviour.pending(after, fx).requests ?? []).toEqual([])
})
