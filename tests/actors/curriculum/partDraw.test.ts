/**
 * A draw of which only a part came into the log: because another curriculum took over in the middle of it, or because an
 * append over several partitions failed. Whatever is due by then, its groups are asked for to their last member, each with
 * one task, and what is drawn next begins behind it.
 */
import fc from 'fast-check'
import { type CurriculumPlan, curriculum, type DrawRequest } from '../../../actors/curriculum/curriculum'
import { drawKey, drawPort } from '../../../actors/curriculum/drawPort'
import { evaluator } from '../../../actors/curriculum/evaluator'
import { claimLearning } from '../../../actors/ownership/claimLearning'
import { fence, fenced } from '../../../actors/ownership/fencing'
import { coordinator } from '../../../actors/rollouts/coordinator'
import { grouper } from '../../../actors/rollouts/grouper'
import { type OwnerState, owner } from '../../../actors/rollouts/owner'
import { followedFeeds } from '../../../actors/run/roles/followed'
import type { Renderer } from '../../../backends/renderer/renderer'
import type { TaskSource } from '../../../config'
import { routeOf } from '../../../messages'
import type { CurriculumAdvanced, Fact, RolloutRequested } from '../../../messages/facts'
import { type Epoch, epoch, groupId, policyVersion, runId, taskId } from '../../../messages/ids'
import type { Bus } from '../../../runtime/bus/bus'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { manualEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { TroupeError } from '../../../runtime/errors'
import type { Answer } from '../../../runtime/host/host'
import { createLog } from '../../../runtime/log'
import { claim, ofType, published, requested } from '../../support/facts'
import { until } from '../../support/until'

const plan: CurriculumPlan = {
  ...{ run: runId('r'), steps: 3, groupsPerStep: 2, refillShare: 1, maxStaleness: 1, maxRejectedSteps: 3 },
  ...{ learns: true, evaluation: { problems: 3, every: 1 } },
}
const size = 2
const fx = manualEffects(0)
const { limits, sampling, task } = requested('g', 0)
const taskAt = (what: string) => (index: number) => ({ ...task, id: taskId(`${what}${index}`) })
const source: TaskSource = { train: taskAt('t'), evaluation: taskAt('e'), dropped: {} }
const renderer = { prompt: async () => ({ text: '', tokens: Int32Array.of(1) }) } as unknown as Renderer
const drawing = {
  ...{ seed: 1, groupSize: size, evaluationSamples: size, limits, sampling, evaluationTemperature: 0, deadlineMs: 1 },
  ...{ tools: [], shownTools: [] },
}

/** Two partitions of `trajectories`, the others of one. */
class Log {
  readonly trajectories: readonly Fact[][] = [[], []]
  readonly runs: Fact[] = []
  readonly learner: Fact[] = []

  say(...facts: readonly Fact[]): void {
    for (const fact of facts) {
      const { topic, key } = routeOf(fact, plan.run)
      if (topic === 'trajectories') this.trajectories[Number(key.at(-1)) % 2]!.push(fact)
      else this[topic as 'runs' | 'learner'].push(fact)
    }
  }

  claim(at: number): void {
    const claimed = { at: 0, owner: `o${at}`, learnerEpoch: epoch(at) }
    this.say({ type: 'draws.claimed', ...claimed })
    for (const partition of [0, 1]) this.say({ type: 'curriculum.claimed', partition, ...claimed })
  }

  *entries(topics: readonly ('trajectories' | 'runs' | 'learner')[]) {
    for (const topic of topics) {
      const partitions = topic === 'trajectories' ? this.trajectories : [this[topic]]
      for (const [partition, facts] of partitions.entries()) {
        for (const [offset, message] of facts.entries()) yield { topic, partition, offset, message }
      }
    }
  }
}

/** What the curriculum draws next, and what comes of it. */
async function next(log: Log, own: Epoch): Promise<Answer | undefined> {
  const behaviour = fenced(curriculum(plan), own)
  const [asked, otherwise] = (
    [
      ['trajectories', 'runs', 'learner'],
      ['learner', 'runs', 'trajectories'],
    ] as const
  ).map(topics => {
    let state = behaviour.initial()
    for (const { message, ...origin } of log.entries(topics)) state = behaviour.evolve(state, message, origin)
    return behaviour.pending(state, fx).requests as readonly DrawRequest[] | undefined
  })
  expect(otherwise).toEqual(asked) // topics are read in any order
  const request = asked?.[0]
  if (request === undefined) return undefined
  const begins = async () => log.trajectories.map(({ length }) => length)
  const port = drawPort(source, renderer, { ...drawing, begins, learnerEpoch: own }, fx)
  return port(request, new AbortController().signal)
}

const factsOf = ({ facts, after = [] }: Answer) => [...facts, ...after]
const evaluated = (step: number): Fact => ({
  ...{ type: 'evaluation.completed', at: 0, name: 'held-out', step, version: policyVersion(step), passAt1: 1 },
  ...{ standardError: 0, n: 1, samples: 1, metrics: {} },
})
const rejected: Fact = {
  ...{ type: 'group.rejected', at: 0, group: groupId('s0001.0001'), epoch: epoch(0), step: 1 },
  ...{ reason: 'equal-rewards', rewarded: 2, meanReward: 1 },
}
const over: readonly Fact[] = [
  published(1),
  { type: 'step.completed', at: 0, step: 1, epoch: epoch(0), version: policyVersion(1), metrics: {} },
]
const meanwhile = { nothing: [], 'a group is rejected': [rejected], 'the step before is over': over }

/** What the coordinators lead, and what was drawn, by whom it counts. */
function outcomeOf(log: Log) {
  const behaviour = owner(
    coordinator({ turnTimeoutMs: 1 }),
    grouper({ runSeed: 1, selection: { variant: 'paper', keep: 2 } }),
  )
  const owners: OwnerState[] = [behaviour.initial(), behaviour.initial()]
  const places = new Map<string, { partition: number; offset: number }>()
  const drawn: CurriculumAdvanced[] = []
  const counts = fence()
  for (const entry of log.entries(['trajectories', 'runs'])) {
    const { topic, partition, offset, message } = entry
    if (topic === 'trajectories') {
      const before = owners[partition]!
      owners[partition] = behaviour.evolve(before, message, { topic, partition, offset })
      if (message.type === 'rollout.requested' && owners[partition] !== before && !places.has(message.group))
        places.set(message.group, { partition, offset })
    } else if (counts(entry) && message.type === 'curriculum.advanced') drawn.push(message)
  }
  const groups = new Map(
    owners.flatMap(({ coordinator: { groups } }) =>
      [...groups].map(([group, { members }]) => [group as string, [...members.values()].map(m => m.request)] as const),
    ),
  )
  return { groups, drawn, places }
}

function expectWhole(log: Log): void {
  const { groups, drawn, places } = outcomeOf(log)
  const told = drawn.flatMap(({ groups: of }) => of as readonly string[])
  expect([...groups.keys()].sort()).toEqual([...new Set(told)].sort())
  for (const [group, requests] of groups) {
    expect([group, requests.map(({ member }) => member)]).toEqual([group, [0, 1]])
    expect([group, new Set(requests.map(r => r.task.id)).size]).toEqual([group, 1])
  }
  const all = [...groups.values()].flat()
  expect(new Set(all.map(({ order }) => order)).size).toBe(all.length)
  for (const { groups: of, begins } of drawn) {
    for (const { partition, offset } of of.map(group => places.get(group)!))
      expect(begins![partition]!).toBeLessThanOrEqual(offset)
  }
}

/** The run's first draw, an evaluation, is due. */
function started(): Log {
  const log = new Log()
  for (const partition of [0, 1]) log.trajectories[partition]!.push({ ...claim(), partition })
  log.claim(3)
  log.say(published(0))
  return log
}

async function begun(): Promise<Log> {
  const log = started()
  log.say(...factsOf((await next(log, epoch(3)))!), evaluated(0))
  log.say(...factsOf((await next(log, epoch(3)))!))
  return log
}

test("the deadline of a draw's rollouts counts from their start, not from the request", async () => {
  const requests = (await next(await begun(), epoch(3)))!.facts as readonly RolloutRequested[]
  expect(requests).toHaveLength(4)
  for (const request of requests) expect(request).toMatchObject({ deadlineMs: 1, deadlineFrom: 'start' })
})

test.each(Object.keys(meanwhile) as (keyof typeof meanwhile)[])(
  'a draw that another curriculum takes over, or that is made again, is made whole whatever part of it is there: %s',
  async what => {
    const takesOver = fc.boolean()
    const part = fc.tuple(fc.integer({ min: 0, max: size }), fc.integer({ min: 0, max: size }))
    await fc.assert(
      fc.asyncProperty(takesOver, part, async (isTakenOver, parts) => {
        const log = await begun()
        const draw = (await next(log, epoch(3)))!
        const requests = draw.facts as readonly RolloutRequested[]
        expect(requests.map(({ group }) => group)).toEqual(['s0002.0000', 's0002.0000', 's0002.0001', 's0002.0001'])
        const isThere = ({ member, group }: RolloutRequested) => member < parts[Number(group.at(-1)) % 2]!
        log.say(...requests.filter(isThere), ...meanwhile[what])
        if (isTakenOver) {
          log.claim(8)
          log.say(...factsOf(draw)) // the rest of it, too late
        }
        const own = epoch(isTakenOver ? 8 : 3)
        for (let drawn = await next(log, own); drawn !== undefined; drawn = await next(log, own)) {
          expect(log.runs.length).toBeLessThan(20)
          log.say(...factsOf(drawn))
        }
        expectWhole(log)
      }),
      { numRuns: 40 },
    )
  },
)

/** Every rollout is right but those of the third problem. */
function ended(group: string, requests: readonly RolloutRequested[]): Fact[] {
  const at = 0
  const outcome = 'answered' as const
  const counts = { turns: 1, sampledTokens: 1, toolCalls: 0, toolErrors: 0, answerTags: 1 }
  const reward = { at, attempt: 1, reward: group.endsWith('2') ? 0 : 1, answer: '', how: 'test' }
  const rewarded = requests.map(({ member }) => member)
  return [
    ...requests.flatMap(({ trajectory }): Fact[] => [
      { type: 'rollout.finished', at, trajectory, epoch: epoch(0), outcome, reason: '', ...counts },
      { type: 'reward.assigned', trajectory, ...reward },
    ]),
    { type: 'group.closed', at, group: groupId(group), epoch: epoch(0), reason: 'complete', rewarded },
  ]
}

test('an evaluation of which only a part came into the log is drawn with all of its problems, and its result is over all', async () => {
  const part = fc.tuple(fc.integer({ min: 0, max: 2 * size }), fc.integer({ min: 0, max: size }))
  await fc.assert(
    fc.asyncProperty(fc.boolean(), part, async (isTakenOver, parts) => {
      const log = started()
      const draw = (await next(log, epoch(3)))!
      const requests = draw.facts as readonly RolloutRequested[]
      const names = ['e0000.0000', 'e0000.0001', 'e0000.0002']
      expect([...new Set(requests.map(({ group }) => group))]).toEqual(names)
      for (const partition of [0, 1])
        log.say(...requests.filter(({ group }) => Number(group.at(-1)) % 2 === partition).slice(0, parts[partition]))
      if (isTakenOver) {
        log.claim(8)
        log.say(...factsOf(draw)) // the rest of it, too late
      }
      const own = epoch(isTakenOver ? 8 : 3)
      log.say(...factsOf((await next(log, own))!))
      expect(await next(log, own)).toBeUndefined() // until there is a result
      expectWhole(log)
      const { groups, drawn } = outcomeOf(log)
      expect(drawn.map(({ purpose, groups: of }) => [purpose, of])).toEqual([['eval', names]])
      expect(names.map(name => groups.get(name)![0]!.task.id)).toEqual(['e0', 'e1', 'e2'])
      log.say(...[...groups].flatMap(([group, requests]) => ended(group, requests)))
      const behaviour = fenced(evaluator(), own)
      let state = behaviour.initial()
      for (const { message, ...origin } of log.entries(['runs', 'learner', 'trajectories']))
        state = behaviour.evolve(state, message, origin)
      const results = behaviour.pending(state, fx).facts
      expect(results).toMatchObject([{ type: 'evaluation.completed', step: 0, n: 3, passAt1: 2 / 3 }])
      log.say(...results)
      const after = (await next(log, own))!.facts as readonly RolloutRequested[]
      expect(after[0]).toMatchObject({ group: 's0001.0000', order: 3 * size })
    }),
    { numRuns: 40 },
  )
})

test('a draw is told only once its requests are durable, and an append that stands in part is made whole', async () => {
  const inner = openMemoryBus()
  let failures = 2
  const bus: Bus = {
    ...inner,
    async append(records) {
      const isDraw = records.some(({ headers }) => headers.type === 'rollout.requested')
      if (!isDraw || failures-- <= 0) return inner.append(records)
      // Some partitions are there, others are not.
      await inner.append(records.filter(({ key, topic }) => topic.endsWith('.runs') || key.endsWith('1')))
      throw new TroupeError('bus.unreachable', { boundary: 'bus', retriable: true, message: 'a leader is away' })
    },
  }
  const failed: Error[] = []
  const log = createLog('test', { level: 'silent' })
  const troupe = await openTroupe({ bus, run: 'r', partitions: 4, log, onFailed: error => failed.push(error) })
  try {
    const own = await claimLearning(troupe.journal, troupe.fx)
    await troupe.journal.append([published(0)])
    const { journal } = troupe
    const offsets = () => Promise.all([0, 1, 2, 3].map(async p => (await journal.offsets('trajectories', p)).next))
    const host = await troupe.host({
      behaviour: fenced(curriculum({ ...plan, evaluation: { problems: 0, every: 0 }, maxStaleness: 0 }), own),
      feeds: followedFeeds,
      perform: drawPort(source, renderer, { ...drawing, begins: offsets, learnerEpoch: own }, troupe.fx),
      keyOf: drawKey,
    })
    await host.live
    const read = async (topic: 'runs' | 'trajectories', partition: number) =>
      (await journal.read(topic, partition, 0, 1000)).map(({ message }) => message)
    await until(async () => ofType(await read('runs', 0), 'curriculum.advanced').length > 0)
    const said = (await Promise.all([0, 1, 2, 3].map(p => read('trajectories', p)))).flat()
    const names = new Set(ofType(said, 'rollout.requested').map(({ trajectory }) => trajectory as string))
    expect([...names].sort()).toEqual(['s0001.0000/0', 's0001.0000/1', 's0001.0001/0', 's0001.0001/1'])
    expect(failed).toEqual([])
  } finally {
    await troupe.close()
    await inner.close()
  }
})
