/** Stages follow one another by facts, measure what they say, and alarms last as long as they say: whatever the order of topics. */
import fc from 'fast-check'
import { type CurriculumPlan, curriculum, type DrawRequest } from '../../../actors/curriculum/curriculum'
import type { StagePlan } from '../../../actors/curriculum/stages'
import { learner } from '../../../actors/learning/learner'
import { stopOverrides } from '../../../cli/train/stopOn'
import { completeAlarm, recipeSchema } from '../../../config'
import { factKey, routeOf } from '../../../messages'
import type { Fact } from '../../../messages/facts'
import { epoch, policyVersion, runId, trajectoryId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'
import { ofType, plan, published } from '../../support/facts'
import { originAt, type World, world } from '../../support/world'

const stage = (name: string, rest: Partial<StagePlan> = {}): StagePlan => ({
  ...{ name, resetOptimizer: false, updateReference: false },
  ...rest,
})
const base: CurriculumPlan = { ...plan, steps: 6 }

type Curriculum = ReturnType<typeof curriculum>
type Running = World<ReturnType<Curriculum['initial']>, DrawRequest>

interface Answers {
  /** Rewards of a group's members. */
  readonly rewards: (group: string, members: number) => readonly number[]
  readonly metrics?: (step: number) => Record<string, number>
}

/** What engines, graders, groupers and the learner say of groups that were drawn; what is in the log already is left out. */
function answers(log: readonly Fact[], { rewards, metrics = () => ({}) }: Answers): Fact[] {
  const known = new Set(log.map(factKey))
  const facts: Fact[] = []
  for (const { groups, purpose, step } of ofType(log, 'curriculum.advanced')) {
    for (const group of groups) {
      for (const [member, reward] of rewards(group, purpose === 'measure' ? 4 : 2).entries()) {
        const trajectory = trajectoryId(group, member)
        const counts = { turns: 1, sampledTokens: 10, toolCalls: 1, toolErrors: member === 0 ? 1 : 0, answerTags: 1 }
        const outcome = member === 0 ? 'truncated' : 'answered'
        facts.push({ type: 'rollout.finished', at: 0, trajectory, epoch: epoch(0), outcome, reason: '', ...counts })
        facts.push({ type: 'reward.assigned', at: 0, trajectory, attempt: 0, reward, answer: '', how: 'h' })
      }
      const common = { at: 0, group, epoch: epoch(0) }
      facts.push({ type: 'group.closed', ...common, reason: 'complete', rewarded: [0, 1] })
      const chosen = { selection: 'paper', generator: 'g', seed: 1, whole: false, kept: [], dropped: [] }
      if (purpose === 'train') facts.push({ type: 'group.selected', ...common, step, ...chosen })
    }
    const version = policyVersion(step)
    if (purpose === 'train')
      facts.push(published(step), {
        type: 'step.completed',
        at: 0,
        step,
        epoch: epoch(0),
        version,
        metrics: metrics(step),
      })
  }
  return facts.filter(fact => !known.has(factKey(fact)))
}

/** Answers the first request as the draw port does, and then all that follows from it. */
function answer(w: Running, said: Answers): DrawRequest {
  const request = w.takeRequest(0)
  const { purpose, groups, step } = request
  const order = request.order + (purpose === 'measure' ? 4 : 2) * groups.length
  w.append({ type: 'curriculum.advanced', at: 0, step, purpose, groups, cursor: request.cursor + groups.length, order })
  for (const fact of answers(w.log, said)) w.append(fact)
  return request
}

const half: Answers = { rewards: () => [0, 1] }

test('each stage begins when the one before has had its steps, and the last lasts to the end', () => {
  const stages = [stage('a', { until: { steps: 2, for: 1 } }), stage('b', { until: { steps: 1, for: 1 } }), stage('c')]
  const w: Running = world(curriculum({ ...base, steps: 5, stages }))
  w.append(published(0))
  const drawn: (number | undefined)[] = []
  while (w.requests.length > 0) drawn.push(answer(w, half).stage)
  expect(drawn).toEqual([0, 0, 1, 2, 2])
  expect(ofType(w.log, 'stage.changed').map(({ stage, step, index }) => [stage, step, index])).toEqual([
    ['a', 0, 0],
    ['b', 2, 1],
    ['c', 3, 2],
  ])
  expect(ofType(w.log, 'run.finished')).toMatchObject([{ outcome: 'done', steps: 5 }])
})

test('a run with stages ahead of its learner draws no step for a stage that may be over by then', () => {
  const stages = [stage('a', { until: { steps: 1, for: 1 } }), stage('b')]
  const w: Running = world(curriculum({ ...base, stages, maxStaleness: 2 }))
  w.append(published(0))
  expect(w.requests.map(({ step, stage }) => [step, stage])).toEqual([[1, 0]])
  answer(w, half)
  expect(w.requests.at(-1)).toMatchObject({ step: 2, stage: 1 })
})

test('a stage ends when a metric has been beyond its bound for so many steps in a row', () => {
  const until = { metric: 'truncatedShare', below: 0.4, for: 2 }
  const w: Running = world(curriculum({ ...base, stages: [stage('a', { until }), stage('b')] }))
  w.append(published(0))
  // Of two rollouts a group, one is truncated: 0.5. From then on none is asked for that is.
  const steps = [0.5, 0.3, 0.5, 0.3, 0.3]
  for (const value of steps) {
    const request = w.requests[0]!
    // The tally is made from rollouts; here the test says what they come to.
    const log = w.log.length
    answer(w, { ...half, metrics: () => ({ loss: 1 }) })
    const told = ofType(w.log.slice(log), 'step.tallied')
    expect(told).toMatchObject([
      { step: request.step, metrics: { truncatedShare: 0.5, toolErrorRate: 0.5, loss: 1, passAt1: 0.5 } },
    ])
    expect(value).toBeGreaterThan(0)
  }
  expect(ofType(w.log, 'stage.changed')).toHaveLength(1)
  // The same log, tallies replaced by those that the test wants: 'b' begins after the fifth step.
  const behaviour = curriculum({ ...base, stages: [stage('a', { until }), stage('b')] })
  const log = w.log.map(fact =>
    fact.type === 'step.tallied'
      ? { ...fact, metrics: { ...fact.metrics, truncatedShare: steps[fact.step - 1]! } }
      : fact,
  )
  const state = log.reduce((s, fact, at) => behaviour.evolve(s, fact, originAt(at)), behaviour.initial())
  const { facts } = behaviour.pending(state, manualEffects(0))
  expect(facts).toMatchObject([{ type: 'stage.changed', stage: 'b', step: 5 }])
})

/** Of task k, k of 4 members are right, in a circle. */
const byTask: Answers = {
  rewards: (group, members) => {
    const task = Number(/\.(\d+)$/.exec(group)![1])
    return Array.from({ length: members }, (_, member) => (member < task % 5 ? 1 : 0))
  },
}
const measures = (minSolved: number, maxSolved: number | undefined, count = 7): readonly StagePlan[] => [
  stage('a', { until: { steps: 1, for: 1 } }),
  stage('b', { problems: { samples: 4, minSolved, maxSolved, count }, resetOptimizer: true, updateReference: true }),
]

test('a stage of problems that are not always solved measures all of them, and trains on those alone', () => {
  const w: Running = world(curriculum({ ...base, steps: 4, stages: measures(0, undefined) }))
  w.append(published(0))
  answer(w, byTask)
  // Two draws are open at most.
  expect(w.requests.map(({ purpose, cursor, groups }) => [purpose, cursor, groups.length])).toEqual([['measure', 0, 2]])
  const trained: DrawRequest[] = []
  while (w.requests.length > 0) {
    const request = answer(w, byTask)
    if (request.purpose === 'train') trained.push(request)
  }
  expect(ofType(w.log, 'tasks.measured').map(({ from, solved }) => [from, [...solved]])).toEqual([
    [0, [0, 1]],
    [2, [2, 3]],
    [4, [4, 0]],
    [6, [1]],
  ])
  const [, changed] = ofType(w.log, 'stage.changed')
  expect(changed).toMatchObject({ stage: 'b', step: 1, index: 1, resetOptimizer: true, updateReference: true })
  expect(changed!.reason).toBe("1 step of 'a'; 6 of 7 problems kept")
  expect(trained.map(({ tasks, stage }) => [stage, tasks])).toEqual(Array(3).fill([1, [0, 1, 2, 3, 5, 6]]))
})

test('a stage that keeps no problem ends the run and says what it looked for', () => {
  const w: Running = world(curriculum({ ...base, stages: measures(3, 3, 2) }))
  w.append(published(0))
  while (w.requests.length > 0) answer(w, byTask)
  expect(ofType(w.log, 'run.finished')).toMatchObject([{ outcome: 'failed' }])
  expect(ofType(w.log, 'run.finished')[0]!.reason).toBe(
    "stage 'b' has no problem to train on: of 2 problems, none was solved in 3 to 3 of 4 rollouts",
  )
})

test('a run that dies anywhere goes on to the same stages, measurements and draws, whatever topic is read first', () => {
  const stages = [...measures(1, 3), stage('c', { until: { metric: 'passAt1', above: 0.1, for: 1 } })]
  stages[1] = { ...stages[1]!, until: { steps: 2, for: 1 } }
  const watched = { ...base, stages, alarms: [{ name: 'x', metric: 'passAt1', above: 0, for: 2, stop: false }] }
  const whole: Running = world(curriculum(watched))
  whole.append(published(0))
  while (whole.requests.length > 0) answer(whole, byTask)
  const keys = (log: readonly Fact[]) => [...new Set(log.filter(f => f.type !== 'alarm.raised').map(factKey))].sort()
  expect(ofType(whole.log, 'run.finished')).toHaveLength(1)
  fc.assert(
    fc.property(
      fc.nat(whole.log.length - 2),
      fc.shuffledSubarray(['runs', 'learner', 'trajectories'], { minLength: 3 }),
      (cut, topics) => {
        const behaviour = curriculum(watched)
        const w: Running = world(behaviour)
        // A log as it was at the cut, its topics read one after the other.
        const before = whole.log.slice(0, cut + 1)
        const sorted = topics.flatMap(topic => before.filter(fact => routeOf(fact, runId('r')).topic === topic))
        ;(w.log as Fact[]).push(...sorted)
        w.restart()
        for (const fact of answers(w.log, byTask)) w.append(fact)
        while (w.requests.length > 0) answer(w, byTask)
        expect(keys(w.log)).toEqual(keys(whole.log))
      },
    ),
    { numRuns: 100 },
  )
})

test('an alarm is raised once it has lasted, once for each time, and stop ends the run until it is resumed', () => {
  const alarms = [
    completeAlarm({ name: 'engine-mismatch', stop: false, for: 2 }),
    completeAlarm({ name: 'mine', metric: 'loss', above: 3, stop: true }),
  ]
  const w: Running = world(curriculum({ ...base, steps: 9, alarms }))
  w.append(published(0))
  const values = [0.01, 0.2, 0.2, 0.2, 0.01, 0.2, 0.2]
  const metrics = (step: number) => ({ klEngine: values[step - 1] ?? 0, loss: step === 7 ? 4 : 1 })
  while (w.requests.length > 0) answer(w, { ...half, metrics })
  expect(ofType(w.log, 'alarm.raised').map(({ alarm, message }) => [alarm, message])).toEqual([
    ['engine-mismatch', expect.stringMatching(/^klEngine is 0.2, above 0.05 for 2 steps, at step 3: .*look at dtype/)],
    ['engine-mismatch', expect.stringMatching(/^klEngine is 0.2, above 0.05 for 2 steps, at step 7: /)],
    ['mine', 'loss is 4, above 3 for 1 step, at step 7'],
  ])
  expect(ofType(w.log, 'run.finished')).toMatchObject([
    { outcome: 'stopped', steps: 7, reason: 'alarm mine: loss is 4, above 3 for 1 step, at step 7' },
  ])
  w.append({ type: 'run.resumed', at: 0, run: runId('r'), recipeDigest: '', codeDigest: '', tokenizerDigest: '' })
  while (w.requests.length > 0) answer(w, { ...half, metrics: () => ({ loss: 1 }) })
  expect(ofType(w.log, 'run.finished').at(-1)).toMatchObject({ outcome: 'done', steps: 9 })
})

test('a refused record is told with the step that was over next, once whoever met it, and can end the run', () => {
  const alarms = [completeAlarm({ name: 'dead-letters', stop: true })]
  const w: Running = world(curriculum({ ...base, steps: 9, alarms }))
  const refused = (offset: number, at = 0): Fact => ({
    ...{ type: 'record.refused', at, origin: `troupe.r.trajectories:0:${offset}`, error: 'torn' },
  })
  w.append(published(0))
  answer(w, half)
  w.append(refused(7), refused(7), refused(8), refused(9, 5000))
  while (w.requests.length > 0) answer(w, half)
  expect(
    ofType(w.log, 'step.tallied')
      .map(({ metrics }) => metrics.deadLetters)
      .slice(0, 2),
  ).toEqual([0, 2])
  expect(ofType(w.log, 'run.finished')).toMatchObject([
    { outcome: 'stopped', reason: expect.stringMatching(/^alarm dead-letters: deadLetters is 2, .*`replay verify`/) },
  ])
})

test('the learner gives the first step of a stage what the stage asks of the trainer, after a refold too', () => {
  const behaviour = learner({ groupsPerStep: 1, refillShare: 0, steps: 3 })
  const changed: Fact = {
    ...{ type: 'stage.changed', at: 0, stage: 'b', step: 0, reason: '', index: 1, resetOptimizer: true },
    updateReference: false,
  }
  const facts: Fact[] = [
    { type: 'checkpoint.saved', at: 0, step: 0, version: policyVersion(0), name: 'c', digest: '' },
    published(0),
    changed,
    {
      type: 'step.started',
      at: 0,
      step: 1,
      epoch: epoch(0),
      baseVersion: policyVersion(0),
      baseCheckpoint: 'c',
      trajectories: [],
    },
  ]
  const state = facts.reduce((s, fact, at) => behaviour.evolve(s, fact, originAt(at)), behaviour.initial())
  const { requests } = behaviour.pending(state, manualEffects(0))
  expect(requests).toMatchObject([{ kind: 'train', batch: { reset: { optimizer: true, reference: false } } }])
})

const resolve = (over: object, overrides: readonly string[] = []) =>
  resolveConfig(recipeSchema, {
    ...{ what: 'recipe x', overrides },
    recipe: { name: 'x', model: { from: 'directory', path: '/m' }, ...over },
  }).value

test.each<[string, object, RegExp]>([
  [
    'a stage that never ends before another',
    { stages: [{ name: 'a' }, { name: 'b' }] },
    /stages\.0\.until: the stage 'a' never ends, so 'b' never begins/,
  ],
  [
    'two stages of a name',
    { stages: [{ name: 'a', until: { steps: 1 } }, { name: 'a' }] },
    /stages\.1\.name: 'a' is already the name/,
  ],
  [
    'a longer context than the run has',
    { stages: [{ name: 'a', limits: { contextTokens: 9000 } }] },
    /9000 is above the run's limits\.contextTokens \(8192\)/,
  ],
  [
    'a stage whose answers are shorter than the buffer of long ones',
    { train: { overlong: { bufferTokens: 500 } }, stages: [{ name: 'a', limits: { responseTokens: 400 } }] },
    /stages\.0\.limits\.responseTokens: 400 is below train\.overlong\.bufferTokens \(500\)/,
  ],
  ['an end without a bound', { stages: [{ name: 'a', until: { metric: 'entropy' } }, { name: 'b' }] }, /needs a bound/],
  [
    'a metric that is none',
    { stages: [{ name: 'a', until: { metric: 'entrpy', below: 1 } }, { name: 'b' }] },
    /unknown metric 'entrpy'; did you mean 'entropy'/,
  ],
  ['a measurement that keeps all', { stages: [{ name: 'a', problems: { maxSolved: 8 } }] }, /keeps every problem/],
  ['an alarm of no metric', { alarms: [{ name: 'mine' }] }, /alarms\.0\.metric: missing/],
  ['a typo in a stage', { stages: [{ name: 'a', untl: {} }] }, /did you mean 'stages\.0\.until'/],
])('%s is refused', (_title, over, expected) => {
  expect(() => resolve(over)).toThrow(expected)
})

test('--stop-on takes an alarm of the recipe, or one by its name, and says which there are', () => {
  const { alarms } = resolve({ alarms: [{ name: 'mine', metric: 'loss', above: 1 }] })
  const over = stopOverrides(alarms, ['tool-errors', 'mine'])
  const after = resolve({ alarms }, over).alarms
  expect(after.map(completeAlarm)).toMatchObject([
    { name: 'mine', stop: true },
    { name: 'tool-errors', metric: 'toolErrorRate', above: 0.5, for: 5, stop: true },
  ])
  const none = resolve({}, stopOverrides(resolve({}).alarms, ['dead-letters', 'dead-letters'])).alarms
  expect(none.map(completeAlarm)).toMatchObject([{ name: 'dead-letters', metric: 'deadLetters', stop: true }])
  expect(stopOverrides(alarms, [])).toEqual([])
  expect(() => stopOverrides([], ['entropy-colapse'])).toThrow(/did you mean 'entropy-collapse'/)
})
