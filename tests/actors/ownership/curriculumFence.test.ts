/**
 * A curriculum that was replaced and does not know it yet, because it was stopped between asking whether it may and saying what
 * it had to say: what it then asks for starts nothing, and what it then says was drawn is waited for by nobody.
 */

import { type CurriculumPlan, curriculum, type DrawRequest } from '../../../actors/curriculum/curriculum'
import { type DrawOptions, drawPort } from '../../../actors/curriculum/drawPort'
import { learnerPort } from '../../../actors/learning/learnerPort'
import { claimLearning } from '../../../actors/ownership/claimLearning'
import { fenced } from '../../../actors/ownership/fencing'
import { coordinator } from '../../../actors/rollouts/coordinator'
import { grouper, oldestOpenGroup } from '../../../actors/rollouts/grouper'
import { owner } from '../../../actors/rollouts/owner'
import type { Renderer } from '../../../backends/renderer/renderer'
import type { Trainer, TrainSequence } from '../../../backends/trainer/trainer'
import type { Message } from '../../../messages'
import type { GenerateTurn } from '../../../messages/commands'
import type { CurriculumAdvanced, CurriculumClaimed, Fact, GroupSelected, StepStarted } from '../../../messages/facts'
import { epoch, groupId, policyVersion, runId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { manualEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { openJournal } from '../../../runtime/journal/openJournal'
import { createLog } from '../../../runtime/log'
import { claim, completed, requested } from '../../support/facts'
import { until } from '../../support/until'
import { refold, world } from '../../support/world'

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

const mark = (at: number) => ({ at: 0, owner: `o${at}`, learnerEpoch: epoch(at) })
const claimed = (at: number): CurriculumClaimed => ({ type: 'curriculum.claimed', partition: 0, ...mark(at) })
const asks = (group: string, at: number, order = 0) => requested(group, 0, { learnerEpoch: epoch(at), order })
const selection = { variant: 'paper', keep: 2 } as const
const behaviour = () => owner(coordinator({ turnTimeoutMs: 1000 }), grouper({ runSeed: 1, selection }))

test('what a replaced curriculum asks for starts nothing, and what it asked for before goes on', () => {
  const w = world(behaviour())
  w.append(claim(), claimed(3), asks('before', 3, 0), claimed(8))
  const before = w.state()
  w.append(asks('stray', 3, 1), requested('before', 1, { learnerEpoch: epoch(3), order: 2 }))
  expect(w.state()).toBe(before)
  w.append(claimed(3)) // its claim comes late, too
  w.append(asks('stray', 3, 1))
  expect(w.state()).toBe(before)
  w.append(asks('after', 8, 1))
  const groups = ['before', 'after'].map(groupId)
  expect([...w.state().coordinator.groups.keys()]).toEqual(groups)
  expect([...w.state().grouper.groups.keys()]).toEqual(groups)
  expect(refold(behaviour(), w.log)).toEqual(w.state())
})

test('the same request under the new curriculum is another: it starts with its own task and order', () => {
  const w = world(behaviour())
  const task = { ...requested('g', 0).task, truth: '7' }
  w.append(claim(), claimed(3), claimed(8), asks('g', 3), { ...asks('g', 8), task })
  expect(w.state().coordinator.groups.get(groupId('g'))?.members.get(0)?.request.task.truth).toBe('7')
})

test('requests that name no curriculum, of older logs and of users, count before and after a claim', () => {
  const w = world(behaviour())
  w.append(claim(), requested('old', 0), claimed(8), requested('own', 0, { order: 1 }))
  expect(w.state().coordinator.groups.size).toBe(2)
})

const plan: CurriculumPlan = {
  ...{
    run: runId('r'),
    steps: 2,
    groupsPerStep: 2,
    refillShare: 1,
    maxStaleness: 1,
    maxRejectedSteps: 3,
    learns: true,
  },
  evaluation: { problems: 0, every: 0 },
}
const advanced = (groups: readonly string[], at: number): CurriculumAdvanced => ({
  ...{
    type: 'curriculum.advanced',
    at: 0,
    step: 1,
    purpose: 'train',
    groups: groups.map(groupId),
    cursor: 9,
    order: 9,
  },
  learnerEpoch: epoch(at),
})

test('a draw that a replaced curriculum reports is not taken for one: the groups are asked for anew', () => {
  const facts: Fact[] = [
    { ...{ type: 'weights.published', at: 0, version: policyVersion(0), step: 0, url: '', digest: '', bytes: 0 } },
    { type: 'draws.claimed', ...mark(3) },
    { type: 'draws.claimed', ...mark(8) },
    advanced(['s0001.0000', 's0001.0001'], 3),
  ]
  const watching = fenced(curriculum(plan))
  const state = facts.reduce(
    (before, fact, offset) => watching.evolve(before, fact, { topic: 'runs', partition: 0, offset }),
    watching.initial(),
  )
  const asked = watching.pending(state, manualEffects(0)).requests as readonly DrawRequest[]
  expect(asked).toMatchObject([{ groups: ['s0001.0000', 's0001.0001'], cursor: 0, order: 0 }])
})

test('taking over claims `runs` and every partition under its epoch, and what is drawn carries it', async () => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(3)
  const fx = manualEffects(0)
  await claimLearning(journal, fx)
  const mine = await claimLearning(journal, fx)
  const last = async (topic: 'runs' | 'trajectories', partition: number) =>
    (await journal.read(topic, partition, 0)).at(-1)!.message
  expect(await last('runs', 0)).toMatchObject({ type: 'draws.claimed', learnerEpoch: mine })
  for (const partition of [0, 1, 2])
    expect(await last('trajectories', partition)).toMatchObject({ partition, learnerEpoch: mine })
  const { limits, sampling, task } = requested('g', 0)
  const options: DrawOptions = {
    ...{ seed: 1, groupSize: 2, evaluationSamples: 1, limits, sampling, evaluationTemperature: 0, deadlineMs: 1 },
    ...{ tools: [], shownTools: [], begins: async () => [0, 0, 0], learnerEpoch: mine },
  }
  const renderer = { prompt: async () => ({ text: '', tokens: Int32Array.of(1) }) } as unknown as Renderer
  const port = drawPort({ train: () => task, evaluation: () => task, dropped: {} }, renderer, options, fx)
  const draw = { kind: 'draw', purpose: 'train', step: 1, cursor: 0, order: 0, minVersion: policyVersion(0) } as const
  const { facts, after = [] } = (await port({ ...draw, groups: [groupId('g')] }, new AbortController().signal))!
  expect([...facts, ...after].map(fact => [fact.type, (fact as { learnerEpoch?: number }).learnerEpoch])).toEqual([
    ...[0, 1].map(() => ['rollout.requested', mine]),
    ['curriculum.advanced', mine],
  ])
  expect(mine).toBe(1)
})

const large = (attempt: number): Fact => ({
  ...{ type: 'reward.assigned', at: 0, trajectory: requested('none', 0).trajectory, attempt, reward: 1, answer: '' },
  how: 'x'.repeat(850_000),
})
const decision = (k: number): Fact => ({
  ...{ type: 'group.closed', at: 0, group: groupId(`none${k}`), epoch: epoch(0), reason: 'deadline', rewarded: [] },
})

test.each([
  ['at once', () => []],
  ['after more decisions than are looked through at once', () => Array.from({ length: 5000 }, (_, k) => decision(k))],
  ['before more bytes than are read at once', () => [], () => Array.from({ length: 24 }, (_, k) => large(k))],
])('an owner that begins behind the claim knows whose requests count: %s', async (_, between, before = () => []) => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const log = createLog('test', { level: 'silent' })
  const open = async () => {
    const troupe = await openTroupe({ bus, run: 'r', log })
    cleanups.push(() => troupe.close())
    return troupe
  }
  const gathers = grouper({ runSeed: 1, selection })
  const feeds = [{ topic: 'trajectories', from: 'committed' }] as const
  const common = { feeds, behaviour: gathers, group: 'owners', oldestOpen: oldestOpenGroup, tickMs: 10 }
  const first = await open()
  const { journal } = first
  const host = await first.host({ ...common, owner: 'a' })
  await host.live
  await journal.append([claimed(3), ...before(), claimed(8), ...between()])
  const { next } = await journal.offsets('trajectories', 0)
  await until(async () => (await journal.committed('owners', 'trajectories', 0)) === next)
  await host.close()
  // Nothing was open: the next one begins here, with what the replaced one says.
  await journal.append([
    { ...asks('stray', 3), deadlineMs: -1e9 },
    { ...asks('g', 8, 1), deadlineMs: -1e9 },
  ])
  const second = await open()
  await (await second.host({ ...common, owner: 'b' })).live
  const closed = async () =>
    (await second.journal.read('trajectories', 0, next))
      .map(({ message }): Message => message)
      .flatMap(message => (message.type === 'group.closed' ? [message.group] : []))
  await until(async () => (await closed()).length > 0)
  expect(await closed()).toEqual(['g'])
})

test('a batch is put together from the request that counts', async () => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  const [, , at] = await journal.append([
    ...[claimed(8), { ...asks('g', 3, 0), tokens: Int32Array.of(9, 9) }],
    ...[asks('h', 8, 1), { ...asks('g', 3, 2), tokens: Int32Array.of(7) }, asks('g', 8, 3)],
    completed({ trajectory: asks('g', 8).trajectory, turn: 0, attempt: 0 } as GenerateTurn, 'a'),
  ])
  const group = groupId('g')
  const { trajectory } = asks('g', 8)
  const place = { partition: 0, offset: at!.offset }
  const started = { step: 1, trajectories: [trajectory] } as unknown as StepStarted
  const kept = [{ member: 0, reward: 1, advantage: 1, penalty: 0 }]
  const groups = [{ group, kept } as unknown as GroupSelected]
  const batch = { started, groups, places: new Map([[group, place]]), metrics: null, rejected: false }
  const trained: number[][] = []
  const trainer = {
    load: async () => {},
    step: async (sequences: readonly TrainSequence[]) => {
      trained.push(...sequences.map(({ tokens }) => [...tokens]))
      return { loss: 0 }
    },
    save: async () => ({ digest: '', bytes: 0 }),
    checkpoint: async () => ({ saved: Promise.resolve({ manifest: '', bytes: 0 }) }),
  } as unknown as Trainer
  const port = learnerPort({
    ...{ trainer: async () => trainer, journal, directory: '/nowhere', grpo: {} as never, checkpointEvery: 1 },
    ...{ keepVersions: 1, fx: manualEffects(0), log: createLog('test', { level: 'silent' }) },
  })
  const request = { kind: 'train', epoch: epoch(8), batch, version: policyVersion(0) } as const
  await port({ ...request, checkpoint: { step: 0, name: 's' }, since: [], saved: [] }, new AbortController().signal)
  expect(trained).toEqual([[1, 2, 3, 0, 1, 2, 3, 4]])
})
