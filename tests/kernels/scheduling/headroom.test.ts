/** What kv-headroom expects of lengths and of KV, whom it begins, pauses and lets go on; and that it decides live as simulated. */
import fc from 'fast-check'
import { scheduler as schedulerActor } from '../../../actors/scheduling/scheduler'
import { baseShape, type EngineModel, h100, type SchedulerEvent, simulate, workload } from '../../../kernels'
import type { PolicyName, TurnAsk } from '../../../kernels/scheduling/contract'
import type { Member } from '../../../kernels/scheduling/engineState'
import { Forecast, type Growing } from '../../../kernels/scheduling/forecast'
import { HomelessQueue } from '../../../kernels/scheduling/homelessQueue'
import type { EngineSpec } from '../../../kernels/scheduling/kvAccount'
import { LengthModel } from '../../../kernels/scheduling/lengthModel'
import { createScheduler } from '../../../kernels/scheduling/scheduler'
import type { Command } from '../../../messages/commands'
import type { Fact } from '../../../messages/facts'
import { type EngineId, engineId, epoch, groupId, policyVersion, type TrajectoryId } from '../../../messages/ids'
import type { Effects } from '../../../runtime/effects'

const spec = (rest: Partial<EngineSpec> = {}): EngineSpec => ({
  engine: engineId('a'),
  kvTokens: 1000,
  blockTokens: 10,
  maxSequences: 100,
  contextTokens: 5000,
  prefixSharing: false,
  prioritySign: -1,
  ...rest,
})
const id = (group: string, member: number): TrajectoryId => `${group}/${member}` as TrajectoryId
const ask = (group: string, member: number, rest: Partial<TurnAsk> = {}): TurnAsk => ({
  trajectory: id(group, member),
  group: groupId(group),
  turn: 0,
  contextTokens: 20,
  promptTokens: 20,
  boundTokens: 420,
  order: member,
  engine: null,
  ...rest,
})

/** A live clock shows a date. */
const dateMs = 1_764_000_000_000

test('before anything is known a rollout is as likely to end in any stretch of its budget as in any other', () => {
  const lengths = new LengthModel()
  const survival = (share: number) => Math.exp(-lengths.cumulative(share))
  for (const share of [0.25, 0.5, 0.75]) expect(survival(share)).toBeCloseTo(1 - share, 1)
})

test('rollouts that still run count as longer than now: early short ones do not make all look short', () => {
  const lengths = new LengthModel()
  const g = groupId('g')
  for (let member = 0; member < 100; member++) lengths.observe(g, id('g', member), 0.25)
  for (let member = 0; member < 10; member++) lengths.finish(id('g', member), true)
  // 10 in 100 ended by a quarter; nothing more is known of the others.
  expect(lengths.survivalOf(groupId('other'))(lengths.cumulative(0.24))).toBeGreaterThan(0.85)
})

test('a group whose members go on longer than others is told from one whose members end early', () => {
  const lengths = new LengthModel()
  for (let member = 0; member < 8; member++) {
    lengths.observe(groupId('long'), id('long', member), 0.6)
    lengths.observe(groupId('short'), id('short', member), 0.1)
  }
  for (let member = 0; member < 7; member++) lengths.finish(id('short', member), true)
  expect(lengths.factor(groupId('long'))).toBeLessThan(lengths.factor(groupId('new')))
  expect(lengths.factor(groupId('new'))).toBeLessThan(lengths.factor(groupId('short')))
})

test('what is held is never more than the sum of the bounds, and a forecast is what a recount gives', () => {
  const change = fc.record({
    member: fc.integer({ min: 0, max: 7 }),
    act: fc.constantFrom('run', 'tool', 'leave'),
    tokens: fc.integer({ min: 30, max: 400 }),
    waitMs: fc.integer({ min: 0, max: 3000 }),
  })
  fc.assert(
    fc.property(fc.array(change, { maxLength: 40 }), fc.boolean(), (changes, prefixSharing) => {
      const lengths = new LengthModel()
      const make = () => new Forecast<Growing>(spec({ prefixSharing }), lengths, 10_000, () => 400)
      const one = make()
      const here = new Map<number, Growing>()
      let nowMs = 0
      for (const { member, act, tokens, waitMs } of changes) {
        nowMs += waitMs
        const before = here.get(member)
        if (before !== undefined) one.take(before)
        here.delete(member)
        if (act === 'leave') continue
        const group = groupId(`g${member % 2}`)
        const phase = act === 'run' ? 'running' : 'tool'
        const next = { group, promptTokens: 25, boundTokens: 425, contextTokens: tokens, phase, sinceMs: nowMs }
        here.set(member, next)
        one.put(next, nowMs)
      }
      nowMs += 1000
      const again = make()
      for (const each of here.values()) again.put(each, nowMs)
      expect(one.heldTokens(nowMs)).toBeCloseTo(again.heldTokens(nowMs), 6)
      expect(one.peakTokens(nowMs)).toBeCloseTo(again.peakTokens(nowMs), 6)
      expect(one.peakTokens(nowMs)).toBeGreaterThanOrEqual(one.heldTokens(nowMs))
      expect(one.peakTokens(nowMs)).toBeLessThanOrEqual(here.size * (425 + 5) + 1e-6)
    }),
  )
})

test('a prompt counts once however many hold it; members with another prompt than their group’s count it themselves, and leave nothing', () => {
  const change = fc.record({
    member: fc.integer({ min: 0, max: 5 }),
    prompt: fc.constantFrom(25, 48, 7),
    stays: fc.boolean(),
  })
  fc.assert(
    fc.property(fc.array(change, { maxLength: 30 }), changes => {
      const one = new Forecast<Growing>(spec({ prefixSharing: true }), new LengthModel(), 10_000, () => 400)
      const here = new Map<number, Growing>()
      for (const { member, prompt, stays } of changes) {
        const before = here.get(member)
        if (before !== undefined) one.take(before)
        here.delete(member)
        if (!stays) continue
        const context = { promptTokens: prompt, boundTokens: 425, contextTokens: prompt + 10 }
        const next = { group: groupId('g'), ...context, phase: 'waiting', sinceMs: 0 }
        const added = one.heldTokensWith(next, 0) - one.heldTokens(0)
        const held = one.heldTokens(0)
        here.set(member, next)
        one.put(next, 0)
        expect(one.heldTokens(0)).toBeCloseTo(held + added, 6)
      }
      const contexts = [...here.values()].map(({ contextTokens }) => contextTokens + 5)
      const all = contexts.reduce((sum, tokens) => sum + tokens, 0)
      // One prompt at most is shared, by all but one of those that are here.
      expect(one.heldTokens(0)).toBeLessThanOrEqual(all + 1e-6)
      expect(one.heldTokens(0)).toBeGreaterThanOrEqual(all - 40 * Math.max(0, here.size - 1) - 1e-6)
      for (const each of here.values()) one.take(each)
      expect(one.heldTokens(0)).toBeCloseTo(0, 6)
    }),
  )
})

test('more begin than could all reach their bounds, and fewer than would fit as they are', () => {
  const one = createScheduler('kv-headroom')
  one.engineJoined(spec())
  for (let member = 0; member < 40; member++) one.turnAsked(ask('g', member))
  const begun = one.decide(0).assignments.length
  expect(begun).toBeGreaterThan(Math.ceil(1000 / 420))
  expect(begun).toBeLessThan(1000 / 25)
})

test('a turn that finds no KV is paused, and those that have had least go on first, each where there is room', () => {
  const one = createScheduler('kv-headroom', { repinMargin: 1 })
  one.engineJoined(spec())
  for (const member of [0, 1, 2]) one.turnAsked(ask('g', member, { boundTokens: 1000 }))
  expect(one.decide(0).assignments).toHaveLength(3)
  const next = (member: number, contextTokens: number) =>
    one.turnAsked(ask('g', member, { turn: 1, contextTokens, boundTokens: 1000, engine: engineId('a') }))
  one.turnEnded(id('g', 0), 700, 10)
  next(0, 700)
  expect(one.decide(10).assignments).toHaveLength(1)
  one.turnEnded(id('g', 1), 300, 20)
  next(1, 300)
  one.turnEnded(id('g', 2), 280, 20)
  next(2, 280)
  expect(one.decide(20)).toEqual({ assignments: [], evictions: [], unfit: [] })
  expect(one.ledger.engine(engineId('a'))).toMatchObject({ running: 1, waiting: 0, inTool: 0 })
  expect(one.waitingTurns).toBe(2)
  // Another engine comes: a paused trajectory goes there, and what it left behind is dropped.
  one.engineJoined(spec({ engine: engineId('b'), kvTokens: 400 }))
  const { assignments, evictions } = one.decide(30)
  expect(assignments).toEqual([{ trajectory: id('g', 2), engine: 'b', order: 2, movedFrom: 'a' }])
  expect(evictions).toEqual([{ trajectory: id('g', 2), engine: 'a' }])
  one.trajectoryReleased(id('g', 0))
  expect(one.decide(40).assignments).toEqual([{ trajectory: id('g', 1), engine: 'a', order: 1, movedFrom: null }])
})

test('those of lost engines go on first, then the paused that have had least, but for one that has waited too long', () => {
  const queue = new HomelessQueue()
  const member = (order: number, used: number, pausedMs: number | null) => {
    const one = {
      trajectory: id('g', order),
      order,
      contextTokens: 20 + used,
      promptTokens: 20,
      pausedMs,
      wave: 0,
      rank: 0,
    }
    queue.push(Object.assign(one, { heapIndex: -1 }) as unknown as Member)
    return one
  }
  const [long, short, lost] = [member(0, 500, dateMs), member(1, 10, dateMs + 50), member(2, 900, null)]
  const next = (afterMs: number) => {
    const one = queue.peek(dateMs + afterMs, 100)!
    queue.remove(one)
    return one
  }
  expect([next(60), queue.peek(dateMs + 60, 100)]).toEqual([lost, short])
  expect([next(101), next(101), queue.size]).toEqual([long, short, 0])
})

test('a trajectory that ends while it is paused leaves nothing behind', () => {
  const one = createScheduler('kv-headroom')
  one.engineJoined(spec())
  for (const member of [0, 1]) one.turnAsked(ask('g', member, { boundTokens: 1000 }))
  one.decide(0)
  one.turnEnded(id('g', 0), 900, 10)
  one.turnAsked(ask('g', 0, { turn: 1, contextTokens: 900, boundTokens: 1000 }))
  one.decide(10)
  one.turnEnded(id('g', 1), 300, 20)
  one.turnAsked(ask('g', 1, { turn: 1, contextTokens: 300, boundTokens: 1000 }))
  one.decide(20)
  one.trajectoryReleased(id('g', 1))
  expect(one.waitingTurns).toBe(0)
  expect(one.decide(30).evictions).toEqual([{ trajectory: id('g', 1), engine: 'a' }])
})

test('an engine on which nothing runs begins what fits it, though all its KV is of trajectories that rest in tools', () => {
  const one = createScheduler('kv-headroom')
  one.engineJoined(spec())
  one.turnAsked(ask('g', 0, { boundTokens: 1000 }))
  one.decide(0)
  one.turnEnded(id('g', 0), 950, 10)
  one.turnAsked(ask('g', 1, { contextTokens: 500, promptTokens: 500, boundTokens: 1000 }))
  expect(one.decide(20).assignments).toMatchObject([{ trajectory: id('g', 1), engine: 'a' }])
})

test('a few of each group begin first, then those of the group that seems to become longest', () => {
  const one = createScheduler('kv-headroom', { overcommit: 1000 })
  one.engineJoined(spec({ kvTokens: 100_000, maxSequences: 8 }))
  for (let member = 0; member < 8; member++) {
    one.turnAsked(ask('short', member, { order: member }))
    one.turnAsked(ask('long', member, { order: 100 + member }))
  }
  const begin = (nowMs: number) => one.decide(nowMs).assignments.map(({ trajectory }) => trajectory)
  expect(begin(0).sort()).toEqual([0, 1, 2, 3].flatMap(m => [id('long', m), id('short', m)]).sort())
  for (const member of [0, 1, 2]) {
    one.turnEnded(id('short', member), 40, 10)
    one.trajectoryReleased(id('short', member))
    one.turnEnded(id('long', member), 300, 10)
    one.turnAsked(ask('long', member, { turn: 1, contextTokens: 300 }))
  }
  const then = begin(20).filter(trajectory => !trajectory.endsWith('/0') && Number(trajectory.split('/')[1]) > 3)
  expect(then).toEqual([id('long', 4), id('long', 5), id('long', 6)])
})

test('whoever has waited much longer than trajectories live goes ahead of those preferred for their length', () => {
  const one = createScheduler('kv-headroom')
  one.engineJoined(spec({ maxSequences: 1 }))
  const play = (group: string, member: number, atMs: number, length: number) => {
    one.turnEnded(id(group, member), length, atMs)
    one.trajectoryReleased(id(group, member))
  }
  for (let member = 0; member < 6; member++) one.turnAsked(ask('short', member, { order: member }))
  let nowMs = 0
  for (let member = 0; member < 5; member++) {
    expect(one.decide(nowMs).assignments).toMatchObject([{ trajectory: id('short', member) }])
    nowMs += 10
    play('short', member, nowMs, 30)
  }
  // A stream of a longer group; each of its members is alone when it ends, and the last of the short group still waits.
  const order: string[] = []
  for (let member = 0; member < 60 && !order.includes('short/5'); member++) {
    one.turnAsked(ask('long', member, { order: 10 + member }))
    one.turnAsked(ask('long', member + 1, { order: 11 + member }))
    const [next] = one.decide(nowMs).assignments
    order.push(next!.trajectory)
    nowMs += 10
    one.turnEnded(next!.trajectory, 400, nowMs)
    one.trajectoryReleased(next!.trajectory)
  }
  expect(order).toContain('short/5')
  expect(order.length).toBeGreaterThan(3)
})

const model: EngineModel = {
  name: 'small',
  family: 'vllm',
  kvTokens: 4096,
  blockTokens: 16,
  maxSequences: 32,
  maxBatchTokens: 512,
  prefixSharing: true,
  stepMs: {
    overhead: 1,
    denseFloor: 10,
    densePerToken: 0.03,
    decodeBase: 0.5,
    decodePerSequence: 0.01,
    decodePerKvToken: 0.001,
    prefillBase: 0,
    prefillPerToken: 0,
    prefillPerPair: 1e-6,
  },
}

/** Plays what a simulation told its scheduler to the scheduler actor, and returns what that assigned, batch by batch. */
function live(
  events: readonly SchedulerEvent[],
  policy: PolicyName,
  trace: ReturnType<typeof workload>,
  bound: number,
  clockMs = dateMs,
) {
  const { decide, evolve, initial } = schedulerActor(policy)
  const lines = new Map(trace.map(one => [one.trajectoryId, one]))
  const orders = new Map(trace.map((one, i) => [one.trajectoryId, i]))
  let state = initial()
  let nowMs = clockMs
  const fx = { now: () => nowMs, elapsed: () => nowMs } as Effects
  const origin = { offset: 0 } as Parameters<typeof evolve>[2]
  const tell = (fact: Fact) => {
    state = evolve(state, fact, origin)
    return decide(state, fact as never, fx).commands
  }
  const prioritySign = policy === 'kv-headroom' ? -1 : 0
  const { kvTokens, blockTokens, maxSequences, prefixSharing } = model
  for (const name of ['engine-0', 'engine-1']) {
    const engine = engineId(name)
    tell({
      type: 'engine.joined',
      at: 0,
      engine,
      kind: 'simulated',
      model: model.name,
      kvTokens,
      blockTokens,
      maxSequences,
      contextTokens: Math.max(kvTokens, bound) + 1,
      prefixSharing,
      prioritySign,
    })
    tell({ type: 'weights.applied', at: 0, engine, version: policyVersion(0), digest: '' })
  }
  const context = new Map<string, number>()
  const engines = new Map<string, EngineId>()
  const assigned: string[] = []
  const follow = (commands: readonly Command[]) => {
    for (const command of commands) {
      if (command.type !== 'turn.assign') continue
      assigned.push(`${command.ask.trajectory}#${command.ask.turn}@${command.engine}`)
      engines.set(command.ask.trajectory, command.engine)
    }
  }
  for (const event of events) {
    // In parts of a ms that a date can be told in.
    nowMs = clockMs + Math.round(event.atMs * 1024) / 1024
    if (event.kind === 'status') {
      const { engine, referencedTokens } = event
      follow(decide(state, { type: 'engine.status', engine, kvTokens, referencedTokens } as never, fx).commands)
      continue
    }
    if (event.kind === 'decided') continue
    const { trajectory, turn } = event
    const line = lines.get(trajectory)!
    const { newTokens } = line.turns[turn]!
    if (event.kind === 'asked') {
      const before = line.turns[turn - 1]
      context.set(trajectory, turn === 0 ? line.promptTokens : context.get(trajectory)! + before!.toolTokens)
      follow(
        decide(
          state,
          {
            type: 'turn.generate',
            trajectory: trajectory as TrajectoryId,
            turn,
            attempt: 0,
            epoch: epoch(0),
            engine: engines.get(trajectory) ?? null,
            seed: 0,
            sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] },
            maxTokens: 1,
            context: new Int32Array(context.get(trajectory)!),
            resumedTokens: 0,
            promptTokens: line.promptTokens,
            boundTokens: bound,
            order: orders.get(trajectory)!,
            minVersion: policyVersion(0),
          },
          fx,
        ).commands,
      )
      continue
    }
    context.set(trajectory, context.get(trajectory)! + newTokens)
    const fact = { type: 'turn.completed', at: nowMs, trajectory, turn, attempt: 0, tokens: new Int32Array(newTokens) }
    const last = turn === line.turns.length - 1
    const commands = tell(fact as unknown as Fact)
    follow(
      last
        ? decide(state, { type: 'trajectory.release', trajectory: trajectory as TrajectoryId }, fx).commands
        : commands,
    )
  }
  return assigned
}

test.each<PolicyName>(['static', 'static-async', 'least-requests', 'kv-headroom'])(
  'under %s the scheduler actor, told what a simulation tells its scheduler, decides the same turns in the same order',
  policy => {
    const shape = { ...baseShape, groups: 3, groupSize: 6, promptTokens: [20, 90] as const, meanTokens: 500 }
    const trace = workload({ ...shape, capTokens: 1500, arrivalMs: 900 }, 5).map((one, i) => ({
      ...one,
      // One after the other: the actor decides after each message, the simulation after all of one time.
      arrivalMs: one.arrivalMs + i * 0.37,
    }))
    const events: SchedulerEvent[] = []
    const bound = 1500
    simulate(trace, { model, engines: 2, policy, boundTokens: bound, observe: event => events.push(event) })
    const turns = new Map<string, number>()
    const simulated = events.flatMap(event => {
      if (event.kind === 'asked') turns.set(event.trajectory, event.turn)
      if (event.kind !== 'decided') return []
      return event.assignments.map(({ trajectory, engine }) => `${trajectory}#${turns.get(trajectory)}@${engine}`)
    })
    expect(live(events, policy, trace, bound)).toEqual(simulated)
    expect(simulated).toHaveLength(trace.reduce((sum, one) => sum + one.turns.length, 0))
  },
)

test('who is paused goes on in the same order whatever the clock shows: in a simulation, or on a date', () => {
  const shape = { ...baseShape, groups: 8, groupSize: 8, promptTokens: [20, 90] as const, meanTokens: 500 }
  const trace = workload({ ...shape, capTokens: 1500, arrivalMs: 900 }, 5)
  const events: SchedulerEvent[] = []
  const bound = 1500
  simulate(trace, { model, engines: 2, policy: 'kv-headroom', boundTokens: bound, observe: one => events.push(one) })
  expect(live(events, 'kv-headroom', trace, bound, dateMs)).toEqual(live(events, 'kv-headroom', trace, bound, 0))
})

test('the longest time from a first turn to the end does not grow with the number of trajectories that wait to begin', () => {
  const longestLifeMs = (trajectories: number): number => {
    const trace = workload({ ...baseShape, groups: trajectories / baseShape.groupSize }, 7)
    const begunMs = new Map<string, number>()
    let longest = 0
    const { makespanMs } = simulate(trace, {
      ...{ model: { ...h100, kvTokens: 134_000 }, engines: 1, policy: 'kv-headroom' },
      observe: event => {
        if (event.kind === 'decided')
          for (const { trajectory } of event.assignments)
            if (!begunMs.has(trajectory)) begunMs.set(trajectory, event.atMs)
        if (event.kind === 'ended') longest = Math.max(longest, event.atMs - begunMs.get(event.trajectory)!)
      },
    })
    expect(longest).toBeLessThan(makespanMs / 2)
    return longest
  }
  expect(longestLifeMs(2048)).toBeLessThan(1.5 * longestLifeMs(1024))
})
