import fc from 'fast-check'
import { coordinator } from '../../../actors/rollouts/coordinator'
import { grouper } from '../../../actors/rollouts/grouper'
import type { OwnerRequest, RenderRequest } from '../../../actors/rollouts/nextActions'
import { type OwnerState, oldestOpen, owner } from '../../../actors/rollouts/owner'
import { assembleSequence } from '../../../kernels'
import type { GenerateTurn } from '../../../messages/commands'
import type { Fact, GroupSelected, RolloutFinished, TrajectoryFact, TurnAsked } from '../../../messages/facts'
import { engineId, epoch, groupId, policyVersion, trajectoryId } from '../../../messages/ids'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { openTroupe } from '../../../runtime/embed'
import { createLog } from '../../../runtime/log'
import { answer, claim, completed, ofType, requested, toolCall, toolName } from '../../support/facts'
import { until } from '../../support/until'
import { refold, type World, world } from '../../support/world'

const behaviour = () =>
  owner(
    coordinator({ turnTimeoutMs: 10_000 }),
    grouper({
      runSeed: 1,
      selection: { variant: 'paper', keep: 2, minNegative: 1, minPositive: 1, rejectEqual: true },
    }),
  )

const cleanups: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

type Owner = World<OwnerState, OwnerRequest>

const start = (...groups: readonly string[]): Owner => {
  const w = world(behaviour())
  w.append(claim())
  groups.forEach((group, g) => {
    for (let member = 0; member < 4; member++) w.append(requested(group, member, { order: 4 * g + member }))
  })
  return w
}

const factsOf = <T extends Fact['type']>(w: Owner, type: T) => ofType(w.log, type)

/** Answers one open command or request, as real answerers would; `word` makes the model's text. */
function answerOne(w: Owner, pick: number, word: (ask: GenerateTurn) => string): boolean {
  const open = w.commands.length + w.requests.length
  if (open === 0) return false
  const index = pick % open
  if (index >= w.commands.length) {
    const { trajectory, turn, epoch } = w.takeRequest(index - w.commands.length) as RenderRequest
    w.append({ type: 'context.appended', at: 0, trajectory, turn, epoch, text: 'r', tokens: Int32Array.of(8, 9) })
    return true
  }
  const command = w.takeCommand(index)
  switch (command.type) {
    case 'turn.generate':
      w.append(completed(command, word(command)))
      return true
    case 'tool.execute': {
      const { trajectory, turn, call, attempt, tool } = command
      const ran = { stdout: '4', stderr: '', exitCode: 0, wallMs: 1, cpuMs: 1, executor: null }
      const status = call === 0 ? 'ok' : 'error'
      w.append({ type: 'tool.completed', at: 0, trajectory, turn, call, attempt, tool, status, text: '4', ...ran })
      return true
    }
    case 'answer.verify': {
      const { trajectory, attempt, response } = command
      const reward = response.includes('boxed{4}') ? 1 : 0
      w.append({ type: 'reward.assigned', at: 0, trajectory, attempt, reward, answer: '', how: 'test' })
      return true
    }
    default:
      return true
  }
}

/** A model that sometimes calls tools, sometimes brokenly, and answers right half of the time. */
const script = (ask: GenerateTurn): string => {
  const roll = (ask.order * 7 + ask.turn * 3) % 5
  if (ask.turn < 2 && roll === 0) return toolCall('print(4)')
  if (ask.turn < 2 && roll === 1) return `${toolCall('a')}${toolCall('b')}`
  if (ask.turn < 1 && roll === 2) return '<tool_call>{"name": </tool_call>'
  return answer(ask.order % 2 === 0 ? '4' : '5')
}

/** Number of tokens in the trajectory's facts of these types. */
const tokensOf = (w: Owner, trajectory: string, types: readonly ('turn.completed' | 'context.appended')[]) =>
  types
    .flatMap(type => factsOf(w, type))
    .reduce((sum, fact) => sum + (fact.trajectory === trajectory ? fact.tokens.length : 0), 0)

test('whatever the order of answers, every rollout ends and every group is decided once, the same way', () => {
  const decisions = new Set<string>()
  fc.assert(
    fc.property(fc.infiniteStream(fc.nat()), picks => {
      const w = start('g0', 'g1')
      while (answerOne(w, picks.next().value as number, script)) {}
      const finished = factsOf(w, 'rollout.finished')
      expect(finished).toHaveLength(8)
      for (const { trajectory, ...counted } of finished) {
        expect(counted.sampledTokens).toBe(tokensOf(w, trajectory, ['turn.completed']))
        expect(counted.responseTokens).toBe(tokensOf(w, trajectory, ['turn.completed', 'context.appended']))
      }
      expect(factsOf(w, 'group.closed').map(f => f.reason)).toEqual(['complete', 'complete'])
      const selected = factsOf(w, 'group.selected').sort((a, b) => (a.group < b.group ? -1 : 1))
      expect(selected).toHaveLength(2)
      decisions.add(JSON.stringify(selected.map(({ kept, dropped }: GroupSelected) => [kept, dropped])))
      expect(w.state().coordinator.groups.size).toBe(0)
      expect(oldestOpen(w.state())).toBeUndefined()
    }),
    { numRuns: 50 },
  )
  expect(decisions.size).toBe(1)
})

test('the refold of every prefix of a history is the state that the live owner had there', () => {
  fc.assert(
    fc.property(fc.infiniteStream(fc.nat()), fc.nat(200), (picks, stopAt) => {
      const w = start('g0')
      for (let i = 0; i < stopAt; i++) if (!answerOne(w, picks.next().value as number, script)) break
      expect(refold(behaviour(), w.log)).toEqual(w.state())
    }),
    { numRuns: 100 },
  )
})

test('an owner that dies at any moment goes on from the log: what was finished is not asked again, all ends', () => {
  fc.assert(
    fc.property(fc.infiniteStream(fc.nat()), fc.array(fc.nat(30), { maxLength: 4 }), (picks, lives) => {
      const w = start('g0', 'g1')
      for (const steps of lives) {
        for (let i = 0; i < steps; i++) if (!answerOne(w, picks.next().value as number, script)) break
        const done = new Set(factsOf(w, 'turn.completed').map(f => `${f.trajectory}#${f.turn}`))
        const asked = factsOf(w, 'turn.asked').length
        w.restart(claim('b'))
        for (const ask of factsOf(w, 'turn.asked').slice(asked)) {
          expect(done).not.toContain(`${ask.trajectory}#${ask.turn}`)
        }
      }
      while (answerOne(w, picks.next().value as number, script)) {}
      const finished = new Map(factsOf(w, 'rollout.finished').map(f => [f.trajectory, f]))
      expect(finished.size).toBe(8)
      expect(factsOf(w, 'group.selected').length + factsOf(w, 'group.rejected').length).toBeGreaterThanOrEqual(2)
      expect(w.state().grouper.groups.size).toBe(0)
    }),
    { numRuns: 100 },
  )
})

test('an answer to an attempt that was given up changes nothing, and the turn counts once', () => {
  const w = start('g0')
  const first = w.commands.find((c): c is GenerateTurn => c.type === 'turn.generate')!
  w.restart(claim('b'))
  const before = w.state()
  w.append(completed(first, answer('4')))
  expect(w.state()).toBe(before)
  const again = w.commands.find(
    (c): c is GenerateTurn => c.type === 'turn.generate' && c.trajectory === first.trajectory,
  )!
  expect(again).toMatchObject({ turn: 0, attempt: 1, seed: first.seed })
  w.append(completed(again, answer('4')), completed(again, answer('5')))
  expect(factsOf(w, 'rollout.finished').filter(f => f.trajectory === first.trajectory)).toHaveLength(1)
})

test('a decision of a former owner is ignored', () => {
  const w = start('g0')
  w.append(claim('b'))
  const before = w.state()
  const late: TurnAsked = { ...factsOf(w, 'turn.asked')[0]!, attempt: 9 }
  w.append(late)
  w.append({ ...late, type: 'group.closed', group: requested('g0', 0).group, reason: 'deadline', rewarded: [] } as Fact)
  expect(w.state()).toBe(before)
})

test('an interrupted turn goes on from its tokens, and the training sequence holds them once', () => {
  const w = start('g0')
  const ask = w.takeCommand(0) as GenerateTurn
  const part = { tokens: Int32Array.of(70, 71), logprobs: Float32Array.of(-1, -2) }
  const segments = [{ policyVersion: policyVersion(0), start: 0, end: 2 }]
  const { trajectory, turn, attempt } = ask
  w.append({
    type: 'turn.interrupted',
    at: 0,
    trajectory,
    turn,
    attempt,
    engine: engineId('e0'),
    ...part,
    segments,
    reason: 'aborted',
    error: '',
  })
  const next = w.commands.find((c): c is GenerateTurn => c.type === 'turn.generate' && c.trajectory === trajectory)!
  expect(next).toMatchObject({ turn: 0, attempt: 1, resumedTokens: 2, maxTokens: ask.maxTokens - 2 })
  expect([...next.context]).toEqual([1, 2, 3, 70, 71])
  w.append(completed(next, answer('4')))
  const own = w.log.filter(f => 'trajectory' in f && f.trajectory === trajectory) as TrajectoryFact[]
  expect([...assembleSequence(own).tokens]).toEqual([1, 2, 3, 70, 71, 0, 1, 2, 3, 4])
})

test('engine faults are tried again, then the rollout has failed and is no negative of its group', () => {
  const w = start('g0')
  const { trajectory } = requested('g0', 0)
  for (let attempt = 0; attempt < 5; attempt++) {
    const ask = w.commands.find(
      (c): c is GenerateTurn => c.type === 'turn.generate' && c.trajectory === trajectory && c.attempt === attempt,
    )!
    const nothingDone = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] }
    w.append({
      type: 'turn.interrupted',
      at: 0,
      trajectory,
      turn: 0,
      attempt: ask.attempt,
      engine: engineId('e0'),
      ...nothingDone,
      reason: 'engine-error',
      error: 'no',
    })
  }
  expect(factsOf(w, 'rollout.finished')).toMatchObject([{ trajectory, outcome: 'failed' }])
  w.commands.splice(
    0,
    w.commands.length,
    ...w.commands.filter(c => !('trajectory' in c) || c.trajectory !== trajectory),
  )
  while (answerOne(w, 0, ask => answer(ask.order === 1 ? '4' : '5'))) {}
  expect(factsOf(w, 'group.closed')[0]!.rewarded).toEqual([1, 2, 3])
  expect(factsOf(w, 'group.selected')).toHaveLength(1)
})

test('a reward that fails makes its rollout no negative: the group is decided from the others, at once', () => {
  const w = start('g0')
  const open = () => w.commands.findIndex(c => c.type === 'answer.verify')
  const judge = (ask: (trajectory: TrajectoryFact & { type: 'rollout.finished' }) => Fact) => {
    for (const finished of factsOf(w, 'rollout.finished').slice(factsOf(w, 'reward.assigned').length)) {
      while (open() >= 0) w.takeCommand(open())
      w.append(ask(finished))
    }
  }
  while (w.commands.some(c => c.type === 'turn.generate'))
    answerOne(
      w,
      w.commands.findIndex(c => c.type === 'turn.generate'),
      ask => answer(String(ask.order)),
    )
  judge(({ trajectory }) => {
    const common = { at: 0, trajectory, attempt: 0 }
    const member = Number(trajectory.at(-1))
    if (member === 3) return { type: 'reward.failed', ...common, how: 'raised', why: 'KeyError' }
    return { type: 'reward.assigned', ...common, reward: 0.25 * (member + 1), answer: '', how: 'python' }
  })
  expect(factsOf(w, 'group.closed')).toMatchObject([{ reason: 'complete', rewarded: [0, 1, 2] }])
  // All above 0 are positives: two of 0.25, 0.5 and 0.75 are kept, and their advantages are of the rewards themselves.
  const [selected] = factsOf(w, 'group.selected')
  expect(selected!.kept).toHaveLength(2)
  const [low, high] = selected!.kept.map(k => k.advantage)
  expect(low).toBeCloseTo(-Math.SQRT1_2, 3)
  expect(high).toBeCloseTo(Math.SQRT1_2, 3)
  // A reward that comes after it, from a verifier that was asked twice, changes nothing.
  const late = trajectoryId(groupId('g0'), 3)
  w.append({ type: 'reward.assigned', at: 0, trajectory: late, attempt: 0, reward: 1, answer: '', how: '' })
  expect(factsOf(w, 'group.selected')).toHaveLength(1)
  expect(refold(behaviour(), w.log)).toEqual(w.state())
  expect(w.state().coordinator.groups.size).toBe(0)
})

test('a lost member never wedges a group: it is closed at its deadline and decided from those that have a reward', () => {
  const w = start('g0')
  const lost = requested('g0', 3).trajectory
  w.commands.splice(0, w.commands.length, ...w.commands.filter(c => !('trajectory' in c) || c.trajectory !== lost))
  while (answerOne(w, 0, script)) {}
  expect(factsOf(w, 'group.closed')).toHaveLength(0)
  w.tick(61_000)
  expect(factsOf(w, 'group.closed')).toMatchObject([{ reason: 'deadline', rewarded: [0, 1, 2] }])
  const ending = factsOf(w, 'rollout.finished').find((f: RolloutFinished) => f.trajectory === lost)
  expect(ending).toMatchObject({ outcome: 'failed', reason: 'group-closed' })
  expect(w.state().coordinator.groups.size).toBe(0)
})

test('an actor that begins anew, again and again, gives its groups no more time', () => {
  const w = start('g0')
  for (let n = 0; n < 4; n++) {
    w.tick(14_000)
    w.restart()
  }
  expect(factsOf(w, 'group.closed')).toEqual([])
  w.tick(6000)
  expect(factsOf(w, 'group.closed')).toMatchObject([{ group: 'g0', reason: 'deadline' }])
})

test.each([
  ['a process that is stopped, or a laptop that sleeps,', 1e7, 1e7],
  ['a clock that is set forwards', 0, 1e7],
  ['a clock that is set back', 0, -1e7],
])('%s takes no time from what is waited for, and gives it none', (_, ms, clockMs) => {
  const w = start('g0')
  w.tick(5000)
  w.nap(ms, clockMs)
  w.tick(4000 - Math.min(ms, 4000))
  expect([factsOf(w, 'group.closed'), factsOf(w, 'turn.asked').length]).toEqual([[], 4])
  w.append(...[0, 1, 2, 3].map(member => requested('g1', member, { order: 4 + member, at: 10_000 + clockMs })))
  const asked = () => factsOf(w, 'turn.asked').map(({ trajectory, attempt }) => `${trajectory}#${attempt}`)
  w.tick(3000)
  expect(asked().slice(8)).toEqual(['g0/0#1', 'g0/1#1', 'g0/2#1', 'g0/3#1'])
  w.tick(49_000)
  expect(factsOf(w, 'group.closed').map(({ group }) => group)).toEqual(['g0'])
  w.tick(12_000)
  expect(factsOf(w, 'group.closed').map(({ group, reason }) => [group, reason])).toEqual([
    ['g0', 'deadline'],
    ['g1', 'deadline'],
  ])
})

test('a turn that nobody answers is asked again after its deadline, under a new attempt', () => {
  const w = start('g0')
  w.tick(5000)
  expect(factsOf(w, 'turn.asked')).toHaveLength(4)
  w.tick(6000)
  expect(
    factsOf(w, 'turn.asked')
      .slice(4)
      .map(f => f.attempt),
  ).toEqual([1, 1, 1, 1])
})

test('a tool call that nobody answers is asked for again after its deadline, under the same attempt and without a fact', () => {
  const w = world(behaviour())
  w.append(claim(), requested('g0', 0, { groupSize: 1, deadlineMs: 600_000 }))
  const executes = () => w.commands.filter(command => command.type === 'tool.execute')
  w.append(completed(w.takeCommand(0) as GenerateTurn, `${toolCall('a')}${toolCall('b')}`))
  const [first, second] = executes()
  answerOne(w, w.commands.indexOf(first!), script)
  w.tick(60_000)
  expect(executes()).toEqual([second])
  w.tick(6000)
  expect(executes()).toEqual([second, second])
  w.tick(66_000)
  expect(executes()).toEqual([second, second, second])
  expect(factsOf(w, 'tool.asked')).toHaveLength(2)
  answerOne(w, w.commands.indexOf(second!), script)
  expect(factsOf(w, 'tool.completed').map(({ call, attempt }) => [call, attempt])).toEqual([
    [0, 0],
    [1, 0],
  ])
})

test('a rollout that waits for its first generation is asked for again at intervals that double, then as any turn', () => {
  const w = world(behaviour())
  w.append(claim(), requested('g0', 0, { groupSize: 1, deadlineFrom: 'start' }))
  const attempts = () => factsOf(w, 'turn.asked').length
  const grown = Array.from({ length: 8 }, () => {
    w.tick(10_000)
    return attempts()
  })
  // After 10, 30 and 70 s.
  expect(grown).toEqual([1, 2, 2, 3, 3, 3, 3, 4])
  const { trajectory } = requested('g0', 0)
  w.append({ type: 'rollout.started', at: 81_000, trajectory, engine: engineId('e0') })
  w.tick(9000)
  expect(attempts()).toBe(4)
  w.tick(2000)
  expect(attempts()).toBe(5)
})

test('a malformed call and an unknown tool are answered at once, recorded as failed, and shown to the model', () => {
  const w = start('g0')
  const ask = w.takeCommand(0) as GenerateTurn
  w.append(completed(ask, '<tool_call>{"name": </tool_call><tool_call>{"name": "math", "arguments": {}}</tool_call>'))
  const results = factsOf(w, 'tool.completed')
  expect(results.map(r => r.status)).toEqual(['malformed', 'unknown-tool'])
  expect((w.requests[0] as RenderRequest).responses).toEqual(results.map(r => r.text))
  expect(results[1]!.text).toContain(toolName)
})

test('a rollout out of turns or tokens is truncated, and still verified', () => {
  const w = start('g0')
  for (;;) {
    const index = w.commands.findIndex(c => c.type === 'turn.generate')
    if (index >= 0) w.append(completed(w.takeCommand(index) as GenerateTurn, toolCall('1')))
    else if (w.commands.some(c => c.type === 'tool.execute') || w.requests.length > 0) {
      answerOne(
        w,
        w.requests.length > 0 ? w.commands.length : w.commands.findIndex(c => c.type === 'tool.execute'),
        script,
      )
    } else break
  }
  expect(
    factsOf(w, 'rollout.finished').every(f => f.outcome === 'truncated' && f.reason === 'turns' && f.turns === 4),
  ).toBe(true)
  expect(w.commands.filter(c => c.type === 'answer.verify')).toHaveLength(4)
})

test.each([
  ['a long way below the limit of its stage', 400, 100, undefined, 0],
  ['at the limit of its stage', 100, 100, undefined, -1],
  // Asked for under a recipe that had another buffer.
  ['at a limit below the buffer', 20, 100, undefined, -1],
  ['of a caller who says no limit: the recipe has one', 0, 100, undefined, -0.5],
  ['most of it tool responses', 100, 10, 90, -0.75],
  ['of an earlier version, which recorded what was sampled', 100, 10, undefined, 0],
])(
  'a long answer is punished by the limit that it was asked for under: %s',
  (_title, limit, sampled, whole, expected) => {
    const overlong = { maxTokens: 120, bufferTokens: 40, penalty: 1 }
    const w = world(
      grouper({
        runSeed: 1,
        selection: { variant: 'paper', keep: 2, minNegative: 1, minPositive: 1, advantage: 'none', overlong },
      }),
    )
    w.append(claim())
    for (const member of [0, 1]) {
      const { limits } = requested('g', member)
      const { trajectory, ...request } = requested('g', member, {
        groupSize: 2,
        limits: { ...limits, responseTokens: limit },
      })
      const tokens = { sampledTokens: sampled, ...(whole === undefined ? {} : { responseTokens: whole }) }
      const counts = {
        turns: 1,
        ...(member === 0 ? tokens : { sampledTokens: 0 }),
        toolCalls: 0,
        toolErrors: 0,
        answerTags: 1,
      }
      const ended = { epoch: epoch(0), outcome: 'answered', reason: '', ...counts } as const
      w.append({ ...request, trajectory })
      w.append({ type: 'rollout.finished', at: 0, trajectory, ...ended })
    }
    for (const member of [0, 1]) {
      const { trajectory } = requested('g', member)
      w.append({ type: 'reward.assigned', at: 0, trajectory, attempt: 0, reward: member, answer: '', how: 'test' })
    }
    const [{ kept }] = ofType(w.log, 'group.selected') as [GroupSelected]
    const [long, short] = [0, 1].map(member => kept.find(k => k.member === member)!.advantage)
    // Advantages are the rewards less their mean: the difference is that of the rewards.
    expect(short! - long!).toBeCloseTo(1 - expected)
  },
)

test('a request that is repeated after its group was decided starts nothing', () => {
  const w = start('g0')
  while (answerOne(w, 0, script)) {}
  const facts = w.log.length
  w.append(requested('g0', 0), requested('g0', 3, { order: 3 }))
  expect(w.log.length).toBe(facts + 2)
  expect(w.commands).toHaveLength(0)
})

const under = (at: number) => ({ at: 0, owner: `o${at}`, learnerEpoch: epoch(at) })
const curriculumClaimed = (at: number): Fact => ({ type: 'curriculum.claimed', partition: 0, ...under(at) })
const decided = (k: number): Fact => ({
  ...{
    type: 'group.rejected',
    at: 0,
    group: groupId(`none${k}`),
    epoch: epoch(0),
    step: 1,
    reason: 'too-few-rewarded',
  },
  ...{ rewarded: 0, meanReward: 0 },
})

test.each([
  ['at once', []],
  ['behind more records than are looked through at once', Array.from({ length: 5000 }, (_, k) => decided(k))],
])('an owner that begins behind a draw starts nothing of it again, and all that is new: %s', async (_, between) => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const open = async (name: string) => {
    const troupe = await openTroupe({ bus, run: 'r', log: createLog('test', { level: 'silent' }) })
    cleanups.push(() => troupe.close())
    const feeds = [{ topic: 'trajectories', from: 'committed' }] as const
    const host = await troupe.host({
      ...{ behaviour: behaviour(), feeds, group: 'owners', owner: name, oldestOpen, tickMs: 10 },
      perform: async () => undefined,
    })
    await host.live
    return { journal: troupe.journal, host }
  }
  const asks = (group: string, order: number, at: number) =>
    requested(group, 0, { groupSize: 1, order, learnerEpoch: epoch(at), deadlineMs: -1 })
  const first = await open('a')
  const { journal } = first
  const closed = async () => {
    const entries = await journal.read('trajectories', 0, 0, 10_000)
    // An owner may close a group twice before its own fact comes back; the fold ignores the second one of the same epoch.
    const once = entries.flatMap(({ message }) =>
      message.type === 'group.closed' ? [`${message.group}@${message.epoch}`] : [],
    )
    return [...new Set(once)].map(name => name.slice(0, name.indexOf('@')))
  }
  await journal.append([curriculumClaimed(3), asks('g', 4, 3), curriculumClaimed(8), asks('stray', 9, 3)])
  await until(async () => (await closed()).length === 1)
  await journal.append(between)
  const { next } = await journal.offsets('trajectories', 0)
  await until(async () => ((await journal.committed('owners', 'trajectories', 0)) ?? 0) >= next)
  await first.host.close()
  await open('b')
  // Its draw was not told: the next curriculum makes it again, and goes on behind it.
  await journal.append([asks('g', 4, 8), asks('h', 5, 8)])
  await until(async () => (await closed()).includes('h'))
  expect(await closed()).toEqual(['g', 'h'])
})
