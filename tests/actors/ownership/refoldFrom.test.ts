import { curriculum } from '../../../actors/curriculum/curriculum'
import { evaluator } from '../../../actors/curriculum/evaluator'
import { learner } from '../../../actors/learning/learner'
import { refoldFrom } from '../../../actors/ownership/refoldFrom'
import type { Fact } from '../../../messages/facts'
import { epoch, groupId, policyVersion, runId, trajectoryId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import type { Behaviour } from '../../../runtime/host/behaviour'
import { requested } from '../../support/facts'

interface Topics {
  readonly runs: Fact[]
  readonly learner: Fact[]
  readonly trajectories: Fact[]
}

const groupsOf = (purpose: 'train' | 'eval', step: number) =>
  [0, 1].map(k => groupId(`${purpose === 'train' ? 's' : 'e'}000${step}.000${k}`))

/** A run of four steps with an evaluation before them and after each, and a checkpoint after every second one. */
function history(): Topics {
  const topics: Topics = { runs: [], learner: [], trajectories: [] }
  const at = 0
  const draw = (purpose: 'train' | 'eval', step: number) => {
    const groups = groupsOf(purpose, step)
    const begins = [topics.trajectories.length]
    topics.trajectories.push(...groups.flatMap(g => [0, 1].map(m => requested(g, m, { step, purpose }))))
    const order = topics.trajectories.length
    topics.runs.push({ type: 'curriculum.advanced', at, step, purpose, groups, cursor: 2 * step, order, begins })
    return groups
  }
  const publish = (step: number) => {
    const version = policyVersion(step)
    topics.learner.push({ type: 'weights.published', at, version, step, url: 'file:///w', digest: '', bytes: 0 })
  }
  const evaluate = (step: number) => {
    for (const group of draw('eval', step)) {
      for (const member of [0, 1]) {
        const trajectory = trajectoryId(group, member)
        const counts = { turns: 1, sampledTokens: 9, toolCalls: 0, toolErrors: 0, answerTags: 1 }
        const ended = { outcome: 'answered' as const, reason: '', ...counts }
        topics.trajectories.push(
          { type: 'rollout.finished', at, trajectory, epoch: epoch(0), ...ended },
          { type: 'reward.assigned', at, trajectory, attempt: 0, reward: member, answer: '', how: '' },
        )
      }
      topics.trajectories.push({
        type: 'group.closed',
        at,
        group,
        epoch: epoch(0),
        reason: 'complete',
        rewarded: [0, 1],
      })
    }
    const score = { name: 'held-out', passAt1: 0.5, standardError: 0, n: 2, samples: 2, metrics: {} }
    topics.runs.push({ type: 'evaluation.completed', at, step, version: policyVersion(step), ...score })
  }
  const save = (step: number) =>
    topics.learner.push({
      type: 'checkpoint.saved',
      at,
      step,
      version: policyVersion(step),
      name: `c${step}`,
      digest: '',
    })
  save(0)
  publish(0)
  evaluate(0)
  for (let step = 1; step <= 4; step++) {
    const kept = [0, 1].map(member => ({ member, reward: member, advantage: member, penalty: 0 }))
    const groups = draw('train', step)
    for (const group of groups) {
      const chosen = { selection: 'paper' as const, generator: 'pcg32', seed: 1, whole: false, kept, dropped: [] }
      topics.trajectories.push({ type: 'group.selected', at, group, epoch: epoch(0), step, ...chosen })
    }
    const trajectories = groups.flatMap(g => [0, 1].map(m => trajectoryId(g, m)))
    const base = { baseVersion: policyVersion(step - 1), baseCheckpoint: 'c' }
    topics.learner.push({ type: 'step.started', at, step, epoch: epoch(0), ...base, trajectories })
    if (step % 2 === 0) save(step)
    publish(step)
    const version = policyVersion(step)
    topics.learner.push({ type: 'step.completed', at, step, epoch: epoch(0), version, metrics: {} })
    evaluate(step)
  }
  return topics
}

function refolded<S, R>(behaviour: Behaviour<S, never, R>, topics: Topics, begin: number) {
  let state = behaviour.initial()
  for (const topic of ['trajectories', 'runs', 'learner'] as const) {
    topics[topic].forEach((fact, offset) => {
      if (topic === 'trajectories' && offset < begin) return
      state = behaviour.evolve(state, fact, { topic, partition: 0, offset })
    })
  }
  return behaviour.pending(state, manualEffects(1000))
}

const plan = {
  ...{
    run: runId('r'),
    steps: 9,
    groupsPerStep: 2,
    refillShare: 0,
    maxStaleness: 0,
    maxRejectedSteps: 3,
    learns: true,
  },
  evaluation: { problems: 2, every: 1 },
}

test('what followers have to say is the same when they begin where refoldFrom says, at every point of a run', () => {
  const whole = history()
  let skipped = 0
  for (let runs = 0; runs <= whole.runs.length; runs++) {
    for (let learned = 0; learned <= whole.learner.length; learned++) {
      const topics = { ...whole, runs: whole.runs.slice(0, runs), learner: whole.learner.slice(0, learned) }
      const begin = refoldFrom([...topics.runs, ...topics.learner])(0)
      skipped = Math.max(skipped, begin)
      for (const behaviour of [
        curriculum(plan),
        evaluator(),
        learner({ groupsPerStep: 2, refillShare: 0, steps: 9 }),
      ] as unknown as Behaviour<unknown>[]) {
        expect(refolded(behaviour, topics, begin)).toEqual(refolded(behaviour, topics, 0))
      }
    }
  }
  expect(skipped).toBeGreaterThan(whole.trajectories.length / 2)
})

test('a log whose draws do not say where they began is read from its beginning', () => {
  const { runs, learner: learned } = history()
  const old = runs.map(fact => {
    if (fact.type !== 'curriculum.advanced') return fact
    const { begins: _, ...rest } = fact
    return rest
  })
  expect(refoldFrom([...old, ...learned])(0)).toBe(0)
  expect(refoldFrom([])(0)).toBe(0)
})
