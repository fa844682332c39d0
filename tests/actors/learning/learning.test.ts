import { curriculum, type DrawRequest } from '../../../actors/curriculum/curriculum'
import { evaluator } from '../../../actors/curriculum/evaluator'
import { neededToResume } from '../../../actors/curriculum/outlook'
import { type LearnerRequest, learner } from '../../../actors/learning/learner'
import { grouper } from '../../../actors/rollouts/grouper'
import type { EvaluationCompleted, Fact, StepStarted } from '../../../messages/facts'
import { epoch, groupId, policyVersion, trajectoryId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { ofType, plan, published, requested } from '../../support/facts'
import { refold, world } from '../../support/world'

const advanced = (request: DrawRequest): Fact => ({
  type: 'curriculum.advanced',
  at: 0,
  step: request.step,
  purpose: request.purpose,
  groups: request.groups,
  cursor: request.cursor + request.groups.length,
  order: request.order + 4 * request.groups.length,
})
const selected = (group: string, step: number): Fact => ({
  type: 'group.selected',
  at: 0,
  group: groupId(group),
  epoch: epoch(0),
  step,
  selection: 'paper',
  generator: 'pcg32',
  seed: 1,
  whole: false,
  kept: [
    { member: 2, reward: 0, advantage: -1, penalty: 0 },
    { member: 0, reward: 1, advantage: 1, penalty: 0 },
  ],
  dropped: [],
})
const rejected = (group: string, step: number): Fact => ({
  type: 'group.rejected',
  at: 0,
  group: groupId(group),
  epoch: epoch(0),
  step,
  reason: 'equal-rewards',
  rewarded: 4,
  meanReward: 1,
})
const completedStep = (step: number): Fact => ({
  type: 'step.completed',
  at: 0,
  step,
  epoch: epoch(0),
  version: policyVersion(step),
  metrics: { loss: 0.1 },
})
const saved = (step: number): Fact => ({
  type: 'checkpoint.saved',
  at: 0,
  step,
  version: policyVersion(step),
  name: `step-${step}`,
  digest: 'd',
})

const evaluated = (step: number): Fact => ({
  type: 'evaluation.completed',
  at: 0,
  name: 'held-out',
  step,
  version: policyVersion(step),
  passAt1: 0.5,
  standardError: 0.1,
  n: 3,
  samples: 1,
  metrics: {},
})

describe('curriculum', () => {
  test('nothing is asked for before there are weights', () => {
    const w = world(curriculum(plan))
    w.tick(1)
    expect(w.requests).toEqual([])
  })

  test('each rejected group is replaced by exactly one, up to the refill share', () => {
    const w = world(curriculum(plan))
    w.append(published(0))
    expect(w.requests).toMatchObject([{ purpose: 'train', step: 1, groups: ['s0001.0000', 's0001.0001'], cursor: 0 }])
    w.append(advanced(w.takeRequest(0)))
    w.append(rejected('s0001.0001', 1))
    expect(w.requests).toMatchObject([{ groups: ['s0001.0002'], cursor: 2, order: 8 }])
    w.append(advanced(w.takeRequest(0)), rejected('s0001.0002', 1))
    w.append(advanced(w.takeRequest(0)), rejected('s0001.0003', 1), selected('s0001.0000', 1))
    expect(w.requests).toEqual([])
    expect(w.log.filter(f => f.type === 'run.finished')).toEqual([])
  })

  test('a step of which every group was rejected ends the run and says why', () => {
    const w = world(curriculum({ ...plan, refillShare: 0 }))
    w.append(published(0))
    w.append(advanced(w.takeRequest(0)), rejected('s0001.0000', 1), rejected('s0001.0001', 1))
    expect(w.log.filter(f => f.type === 'run.finished')).toMatchObject([
      {
        outcome: 'failed',
        reason: 'step 1 has no group to train on: of 2 groups, 2 have the same reward in every rollout (equal-rewards)',
      },
    ])
    expect(w.log.filter(f => f.type === 'alarm.raised')).toHaveLength(1)
    // Resumed as it was, it ends again; with what its end asks for, it draws as many groups again.
    const { reason } = ofType(w.log, 'run.finished')[0]!
    const resumed: Fact = { type: 'run.resumed', at: 0, run: plan.run } as Fact
    const resumedWith = (refillShare: number) => {
      const next = world(curriculum({ ...plan, refillShare }))
      next.append(...w.log, resumed)
      return next
    }
    expect(ofType(resumedWith(0).log, 'run.finished')).toHaveLength(2)
    expect(neededToResume(reason, 0)).toBe('selection.refillShare=1')
    expect(resumedWith(1).requests).toMatchObject([{ purpose: 'train', step: 1, groups: ['s0001.0002', 's0001.0003'] }])
  })

  test('where a later step finds groups of equal rewards alone, the run stops after an evaluation', () => {
    const w = world(curriculum({ ...plan, refillShare: 0, evaluation: { problems: 1, every: 0 } }))
    w.append(published(0))
    w.append(advanced(w.takeRequest(0)), evaluated(0))
    w.append(advanced(w.takeRequest(0)), selected('s0001.0000', 1), selected('s0001.0001', 1))
    w.append(published(1), completedStep(1))
    w.append(advanced(w.takeRequest(0)), rejected('s0002.0000', 2), rejected('s0002.0001', 2))
    expect(w.requests).toMatchObject([{ purpose: 'eval', step: 1, minVersion: 1 }])
    expect(w.log.filter(f => f.type === 'run.finished')).toEqual([])
    w.append(advanced(w.takeRequest(0)), evaluated(1))
    expect(w.log.at(-1)).toMatchObject({
      ...{ type: 'run.finished', outcome: 'stopped' },
      reason: 'step 2 has no group to train on: of 2 groups, 2 have the same reward in every rollout (equal-rewards)',
    })
    expect(w.requests).toEqual([])
  })

  test('the groups of a step are asked for only while it is at most maxStaleness ahead', () => {
    const sync = world(curriculum(plan))
    sync.append(published(0))
    sync.append(advanced(sync.takeRequest(0)))
    expect(sync.requests).toEqual([])
    const ahead = world(curriculum({ ...plan, maxStaleness: 1 }))
    ahead.append(published(0))
    ahead.append(advanced(ahead.takeRequest(0)))
    expect(ahead.requests).toMatchObject([{ step: 2, minVersion: 0 }])
  })

  test('an evaluation comes before the first step and after the last, under the version of then', () => {
    const w = world(curriculum({ ...plan, steps: 1, evaluation: { problems: 3, every: 0 } }))
    w.append(published(0))
    expect(w.requests).toMatchObject([{ purpose: 'eval', step: 0, minVersion: 0 }])
    w.append(advanced(w.takeRequest(0)))
    expect(w.requests).toEqual([])
    w.append(evaluated(0))
    w.append(
      advanced(w.takeRequest(0)),
      selected('s0001.0000', 1),
      selected('s0001.0001', 1),
      published(1),
      completedStep(1),
    )
    expect(w.requests).toMatchObject([{ purpose: 'eval', step: 1, minVersion: 1 }])
    w.append(advanced(w.takeRequest(0)), evaluated(1))
    expect(w.log.at(-1)).toMatchObject({ type: 'run.finished', outcome: 'done' })
  })

  test('a run of no steps and no evaluation is over when there are weights, and not before the cold start', () => {
    const w = world(curriculum({ ...plan, steps: 0 }))
    w.restart()
    expect(w.log.filter(f => f.type === 'run.finished')).toEqual([])
    w.append(published(0))
    expect(w.log.at(-1)).toMatchObject({ type: 'run.finished', outcome: 'done', steps: 0 })
  })

  test('three steps in a row that are rejected stop the run, which says why the last one was', () => {
    const w = world(curriculum({ ...plan, steps: 9 }))
    w.append(published(0))
    for (let step = 1; step <= 3; step++) {
      w.append({ type: 'step.rejected', at: 0, step, epoch: epoch(0), reason: `reason ${step}`, metrics: {} })
    }
    expect(w.log.at(-1)).toMatchObject({
      ...{ type: 'run.finished', outcome: 'failed' },
      reason: '3 steps in a row were rejected, the last one: reason 3',
    })
  })
})

describe('learner', () => {
  const begin = () => {
    const w = world(learner({ groupsPerStep: 2, refillShare: 1, steps: 2 }))
    w.restart()
    return w
  }
  const draw = (step: number, groups: readonly string[]): Fact => ({
    type: 'curriculum.advanced',
    at: 0,
    step,
    purpose: 'train',
    groups: groups.map(groupId),
    cursor: 0,
    order: 0,
  })
  const trainOf = (requests: readonly LearnerRequest[]) =>
    requests.find((r): r is Extract<LearnerRequest, { kind: 'train' }> => r.kind === 'train')

  test('the cold start is asked for once, and again after a crash before its weights', () => {
    const w = begin()
    expect(w.requests).toEqual([{ kind: 'cold-start', epoch: epoch(0) }])
    w.restart()
    expect(w.requests).toEqual([{ kind: 'cold-start', epoch: epoch(0) }])
    w.append(saved(0), published(0))
    w.restart()
    expect(w.requests).toEqual([])
  })

  test('a step starts when all its groups are decided, with its batch in the order of group and member', () => {
    const w = begin()
    w.append(saved(0), published(0), requested('b', 0), requested('a', 0), draw(1, ['a', 'b']))
    w.append(selected('b', 1))
    expect(w.log.some(f => f.type === 'step.started')).toBe(false)
    w.append(selected('a', 1))
    const begun = w.log.find((f): f is StepStarted => f.type === 'step.started')!
    expect(begun.trajectories).toEqual(['a', 'b'].flatMap(g => [2, 0].map(m => trajectoryId(groupId(g), m))))
    expect(trainOf(w.requests)).toMatchObject({ version: 0, checkpoint: { step: 0, name: 'step-0' }, since: [] })
  })

  test('a rejected group is waited for until its replacement is decided', () => {
    const w = begin()
    w.append(saved(0), published(0), draw(1, ['a', 'b']), selected('a', 1), rejected('b', 1))
    expect(w.log.some(f => f.type === 'step.started')).toBe(false)
    w.append(draw(1, ['c']), requested('a', 0), requested('c', 0), selected('c', 1))
    expect(w.log.find(f => f.type === 'step.started')).toMatchObject({ step: 1 })
  })

  test('a step that was started is trained again after a crash, with the same batch; a finished one is not', () => {
    const w = begin()
    w.append(saved(0), published(0), requested('a', 0), requested('b', 0), draw(1, ['a', 'b']))
    w.append(selected('a', 1), selected('b', 1))
    const before = trainOf(w.requests)
    w.restart()
    expect(trainOf(w.requests)).toEqual(before)
    expect(w.log.filter(f => f.type === 'step.started')).toHaveLength(1)
    w.append(published(1), completedStep(1))
    w.restart()
    expect(w.requests).toEqual([])
    w.append(requested('c', 0, { step: 2 }), requested('d', 0, { step: 2 }), draw(2, ['c', 'd']))
    w.append(selected('c', 2), selected('d', 2))
    const second = trainOf(w.requests)!
    expect(second).toMatchObject({ version: 1, checkpoint: { step: 0 } })
    expect(second.since.map(b => b.started.step)).toEqual([1])
    expect(refold(learner({ groupsPerStep: 2, refillShare: 1, steps: 2 }), w.log)).toEqual(w.state())
  })

  const startedStep = () => {
    const w = begin()
    w.append(saved(0), published(0), requested('a', 0), requested('b', 0), draw(1, ['a', 'b']))
    w.append(selected('a', 1), selected('b', 1))
    return w
  }

  test('a step whose checkpoint is in the log without its completion is trained again from the checkpoint before', () => {
    const w = startedStep()
    const before = trainOf(w.requests)!
    w.append(saved(1))
    w.restart()
    expect(trainOf(w.requests)).toEqual({ ...before, saved: w.state().saved })
    expect(w.state().saved.map(({ name }) => name)).toEqual(['step-0', 'step-1'])
    w.append(published(1), completedStep(1))
    expect(w.state()).toMatchObject({ checkpoint: { step: 1, name: 'step-1' }, batches: [] })
    const later = startedStep()
    later.append(published(1), completedStep(1), saved(1))
    expect(later.state()).toEqual(w.state())
  })

  test('a checkpoint of a step that is then rejected is never trained from; the one before it stays', () => {
    const keep = learner({ groupsPerStep: 2, refillShare: 1, steps: 2, keepCheckpoints: 1 })
    const { log } = startedStep()
    const rejectedStep: Fact = { type: 'step.rejected', at: 0, step: 1, epoch: epoch(0), reason: '', metrics: {} }
    for (const facts of [
      [...log, saved(1)],
      [...log, saved(1), rejectedStep],
    ]) {
      const state = refold(keep, facts)
      expect(state.checkpoint).toEqual({ step: 0, name: 'step-0' })
      expect(state.batches.map(({ started }) => started.step)).toEqual([1])
      const removed = (keep.pending(state, manualEffects(0)).requests ?? []).filter(r => r.kind === 'remove-checkpoint')
      expect(removed).toEqual([])
    }
  })
})

describe('evaluator', () => {
  const finished = (group: string, member: number, outcome: 'answered' | 'failed' = 'answered'): Fact => ({
    ...{ type: 'rollout.finished', at: 0, trajectory: trajectoryId(groupId(group), member), epoch: epoch(0) },
    ...{ outcome, reason: '', turns: 1, sampledTokens: 10, toolCalls: 0, toolErrors: 0, answerTags: 1 },
  })
  const rewarded = (group: string, member: number): Fact => ({
    ...{ type: 'reward.assigned', at: 0, trajectory: trajectoryId(groupId(group), member), attempt: 0 },
    ...{ reward: 1, answer: '', how: '' },
  })
  const evaluationOf = (groups: readonly string[]): Fact[] => [
    ...groups.flatMap((group, g) =>
      [0, 1].map(member =>
        requested(group, member, { purpose: 'eval', step: 0, groupSize: 2, order: 2 * g + member, deadlineMs: 1000 }),
      ),
    ),
    ...[{ type: 'curriculum.advanced', at: 0, step: 0, purpose: 'eval', cursor: 3, order: 6 } as const].map(fact => ({
      ...fact,
      groups: groups.map(groupId),
    })),
  ]

  test('an evaluation is over when its last answer is, however long after the draw that comes; training groups have a deadline', () => {
    const groups = ['e0000.0000', 'e0000.0001', 's0001.0000']
    const w = world(grouper({ runSeed: 1, selection: { variant: 'paper', keep: 1 } }))
    w.append({ type: 'partition.claimed', at: 0, partition: 0, owner: 'a' })
    w.append(...evaluationOf(groups.slice(0, 2)), requested(groups[2]!, 0, { order: 9, deadlineMs: 1000 }))
    w.append(finished(groups[0]!, 0), rewarded(groups[0]!, 0), finished(groups[0]!, 1), rewarded(groups[0]!, 1))
    w.tick(100_000_000)
    const closed = () => ofType(w.log, 'group.closed').map(({ group, reason }) => `${group} ${reason}`)
    expect(closed()).toEqual([`${groups[0]} complete`, `${groups[2]} deadline`])
    w.append(finished(groups[1]!, 0), rewarded(groups[1]!, 0), finished(groups[1]!, 1, 'failed'))
    expect(closed()).toContain(`${groups[1]} complete`)
  })

  test('every answer that was asked for is judged, failed or without a reward, also in a log that cuts groups off', () => {
    const groups = ['e0000.0000', 'e0000.0001', 'e0000.0002']
    const w = world(evaluator())
    w.append(...evaluationOf(groups), finished(groups[0]!, 0), rewarded(groups[0]!, 0), finished(groups[1]!, 0))
    for (const group of groups) {
      const common = { at: 0, group: groupId(group), epoch: epoch(0), rewarded: [] }
      w.append({ type: 'group.closed', ...common, reason: 'deadline' })
    }
    expect(w.log.at(-1)).toMatchObject({
      ...{ type: 'evaluation.completed', passAt1: 1, n: 1, samples: 1 },
      ...{ asked: { problems: 3, samples: 2 }, metrics: { failed: 4, unjudged: 1 } },
    })
    // None of them made a call: there is no rate, and 0 would be one.
    for (const name of ['toolErrorRate', 'toolErrorRateInPositives']) {
      expect(w.log.at(-1)).not.toHaveProperty(['metrics', name])
    }
  })

  /** The result of an evaluation: rewards by problem and sample; null: the rollout failed; NaN: it got no reward. */
  function resultOf(rewards: readonly (readonly (number | null)[])[]) {
    const w = world(evaluator())
    const groups = rewards.map((_, g) => groupId(`e0000.000${g}`))
    w.append({ type: 'curriculum.advanced', at: 0, step: 0, purpose: 'eval', groups, cursor: 3, order: 12 })
    rewards.forEach((group, g) => {
      group.forEach((reward, member) => {
        const trajectory = trajectoryId(groups[g]!, member)
        const counts = { turns: 1, sampledTokens: 10, toolCalls: 2, toolErrors: member, answerTags: 1 }
        const outcome = reward === null ? 'failed' : 'answered'
        w.append({ type: 'rollout.finished', at: 0, trajectory, epoch: epoch(0), outcome, reason: '', ...counts })
        if (Number.isNaN(reward)) {
          w.append({ type: 'reward.failed', at: 0, trajectory, attempt: 0, how: 'timeout', why: 'late' })
        } else if (reward !== null) {
          w.append({ type: 'reward.assigned', at: 0, trajectory, attempt: 0, reward, answer: '', how: '' })
        }
      })
      const common = { at: 0, group: groups[g]!, epoch: epoch(0), rewarded: [] }
      w.append({ type: 'group.closed', ...common, reason: 'complete' })
    })
    return w.log.at(-1) as EvaluationCompleted
  }

  test('pass@1 is the mean over problems, a failed rollout, or one without a reward, is left out and counted', () => {
    const result = resultOf([
      [1, 1],
      [1, 0],
      [0, null],
      [0.5, Number.NaN],
    ])
    expect(result).toMatchObject({
      type: 'evaluation.completed',
      passAt1: 0.5,
      n: 4,
      samples: 2,
      metrics: { failed: 1, unjudged: 1, passAtK: 0.625 },
    })
    expect(result.standardError).toBeCloseTo(Math.sqrt(0.5 / 3) / 2, 10)
  })

  test('pass@2, pass@4 … are unbiased estimates, and stand only where every problem has more judged samples', () => {
    const { metrics, standardError } = resultOf([
      [1, 1, 0, 0, 0],
      [0, 0, 0, 0, 0],
    ])
    expect(metrics.passAt2).toBeCloseTo((1 - 3 / 10) / 2, 12)
    expect(metrics).toMatchObject({ passAt4: 1 / 2, passAtK: 1 / 2 })
    expect(standardError).toBeCloseTo(0.2, 10)
    expect(
      resultOf([
        [1, 1, 0],
        [0, null, 1],
      ]).metrics,
    ).not.toHaveProperty('passAt2')
  })

  test('one problem has the standard error of its samples; one sample has none, which is not 0', () => {
    expect(resultOf([[1, 1, 0, 0]]).standardError).toBeCloseTo(Math.sqrt(1 / 3 / 4), 10)
    expect(resultOf([[1]]).standardError).toBeNull()
  })
})
