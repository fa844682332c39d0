/** The scheduling policies, driven event by event: what each promises, and that none ever stops with work left. */
import fc from 'fast-check'
import type { PolicyName, Scheduler, SchedulerOptions, TurnAsk } from '../../../kernels/scheduling/contract'
import { GroupLengths } from '../../../kernels/scheduling/groupLengths'
import { Heap, type HeapItem } from '../../../kernels/scheduling/heap'
import type { EngineSpec } from '../../../kernels/scheduling/kvAccount'
import { createScheduler, policies } from '../../../kernels/scheduling/scheduler'
import { type EngineId, engineId, groupId, partsOf, type TrajectoryId, trajectoryId } from '../../../messages/ids'

const names = Object.keys(policies) as PolicyName[]
const g = groupId('g')

const spec = (name: string, rest: Partial<EngineSpec> = {}): EngineSpec => ({
  engine: engineId(name),
  kvTokens: 1000,
  blockTokens: 10,
  maxSequences: 100,
  contextTokens: 1000,
  prefixSharing: false,
  prioritySign: -1,
  ...rest,
})

const ask = (member: number, rest: Partial<TurnAsk> = {}): TurnAsk => ({
  trajectory: trajectoryId(g, member),
  group: g,
  turn: 0,
  contextTokens: 20,
  promptTokens: 20,
  boundTokens: 300,
  order: member,
  engine: null,
  ...rest,
})

const t = (member: number): TrajectoryId => trajectoryId(g, member)

function scheduler(policy: PolicyName, engines: readonly EngineSpec[], options: SchedulerOptions = {}): Scheduler {
  const made = createScheduler(policy, options)
  for (const one of engines) made.engineJoined(one)
  return made
}

const started = (one: Scheduler, nowMs = 0) =>
  one.decide(nowMs).assignments.map(({ trajectory, engine }) => `${partsOf(trajectory).member}@${engine}`)

test('kv-headroom with bounds admits in start order as many as may surely grow to them', () => {
  const one = scheduler('kv-headroom', [spec('a')], { quantile: null })
  for (const member of [4, 2, 0, 3, 1]) one.turnAsked(ask(member))
  expect(started(one)).toEqual(['0@a', '1@a', '2@a'])
  one.turnEnded(t(1), 50, 0)
  expect(started(one)).toEqual([])
  one.trajectoryReleased(t(1))
  expect(started(one)).toEqual(['3@a'])
})

test('kv-headroom lets a turn of an admitted trajectory go ahead of older ones that have not begun', () => {
  const one = scheduler('kv-headroom', [spec('a', { maxSequences: 1 })])
  one.turnAsked(ask(5, { boundTokens: 100 }))
  expect(started(one)).toEqual(['5@a'])
  one.turnAsked(ask(1, { boundTokens: 100 }))
  one.turnEnded(t(5), 40, 0)
  one.turnAsked(ask(5, { turn: 1, contextTokens: 60, boundTokens: 100, engine: engineId('a') }))
  expect(started(one)).toEqual(['5@a'])
  one.turnEnded(t(5), 80, 0)
  one.trajectoryReleased(t(5))
  expect(started(one)).toEqual(['1@a'])
})

test('kv-headroom never leaves plentiful KV idle: every turn starts at once where all bounds fit', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 20 }), (engines, each) => {
      const one = scheduler(
        'kv-headroom',
        Array.from({ length: engines }, (_, i) => spec(`e${i}`, { kvTokens: 300 * each })),
      )
      for (let member = 0; member < engines * each; member++) one.turnAsked(ask(member))
      expect(one.decide(0).assignments).toHaveLength(engines * each)
      for (const account of one.ledger.engines) expect(account.running).toBe(each)
    }),
  )
})

test('an idle engine takes the oldest trajectory however far it may grow, and only then', () => {
  for (const name of names) {
    const one = scheduler(name, [spec('a', { kvTokens: 100 })])
    one.turnAsked(ask(0, { boundTokens: 5000 }))
    expect([name, started(one)]).toEqual([name, ['0@a']])
    if (name !== 'kv-headroom') continue
    one.turnAsked(ask(1, { boundTokens: 5000 }))
    expect(started(one)).toEqual([])
    one.turnEnded(t(0), 40, 0)
    expect(started(one)).toEqual(['1@a'])
  }
})

test('with bounds an engine takes no other while its only trajectory rests in a tool', () => {
  const one = scheduler('kv-headroom', [spec('a', { kvTokens: 100 })], { quantile: null })
  one.turnAsked(ask(0, { boundTokens: 5000 }))
  expect(started(one)).toEqual(['0@a'])
  one.turnAsked(ask(1, { boundTokens: 5000 }))
  one.turnEnded(t(0), 40, 0)
  expect(started(one)).toEqual([])
  one.trajectoryReleased(t(0))
  expect(started(one)).toEqual(['1@a'])
})

test('a context that no engine could hold is reported once, and stands in nobody’s way', () => {
  for (const name of names) {
    const one = scheduler(name, [spec('a', { kvTokens: 105 }), spec('b', { contextTokens: 80 })])
    one.turnAsked(ask(0, { contextTokens: 100 }))
    one.turnAsked(ask(1, { contextTokens: 99, boundTokens: 100 }))
    const decision = one.decide(0)
    expect([name, decision.unfit]).toEqual([name, [t(0)]])
    expect(decision.assignments).toMatchObject([{ trajectory: t(1), engine: 'a' }])
    expect(one.decide(0)).toEqual({ assignments: [], evictions: [], unfit: [] })
  }
})

test('without engines turns wait, and nothing is unfit', () => {
  const one = createScheduler('kv-headroom')
  one.turnAsked(ask(0))
  expect(one.decide(0)).toEqual({ assignments: [], evictions: [], unfit: [] })
  one.engineJoined(spec('a'))
  expect(started(one)).toEqual(['0@a'])
})

test('static waits for every tool of an engine before its next wave; static-async does not', () => {
  for (const [name, expected] of [
    ['static', []],
    ['static-async', ['0@a']],
  ] as const) {
    const one = scheduler(name, [spec('a')])
    one.turnAsked(ask(0))
    one.turnAsked(ask(1))
    expect(started(one)).toEqual(['0@a', '1@a'])
    one.turnEnded(t(0), 40, 0)
    one.turnAsked(ask(0, { turn: 1, contextTokens: 50 }))
    expect(started(one)).toEqual(expected)
    one.turnEnded(t(1), 40, 0)
    expect([name, started(one)]).toEqual([name, []])
    one.turnAsked(ask(1, { turn: 1, contextTokens: 50 }))
    expect(started(one)).toEqual(name === 'static' ? ['0@a', '1@a'] : ['1@a'])
  }
})

test('a wave larger than the engine goes on as sequences become free', () => {
  const one = scheduler('static', [spec('a', { maxSequences: 2 })])
  for (const member of [0, 1, 2]) one.turnAsked(ask(member))
  expect(started(one)).toEqual(['0@a', '1@a'])
  one.turnEnded(t(0), 40, 0)
  one.turnAsked(ask(0, { turn: 1, contextTokens: 50 }))
  expect(started(one)).toEqual(['2@a'])
  one.turnEnded(t(1), 40, 0)
  one.trajectoryReleased(t(1))
  one.turnEnded(t(2), 40, 0)
  one.trajectoryReleased(t(2))
  expect(started(one)).toEqual(['0@a'])
})

test('static shares are equal whatever is still running; least-requests follows what is in flight', () => {
  for (const [name, expected] of [
    ['static-async', '3@b'],
    ['least-requests', '3@a'],
  ] as const) {
    const one = scheduler(name, [spec('a'), spec('b')])
    for (const member of [0, 1, 2]) one.turnAsked(ask(member))
    expect(started(one).sort()).toEqual(['0@a', '1@b', '2@a'])
    for (const member of [0, 2]) {
      one.turnEnded(t(member), 40, 0)
      one.trajectoryReleased(t(member))
    }
    one.turnAsked(ask(3))
    expect([name, started(one)]).toEqual([name, [expected]])
  }
})

test('a trajectory stays with its engine, and moves between turns only when that engine is out by the margin', () => {
  for (const [repinMargin, expected] of [
    [1, '0@a'],
    [0.3, '0@b'],
  ] as const) {
    const one = scheduler('kv-headroom', [spec('a')], { repinMargin, quantile: null })
    for (const member of [0, 1, 2]) one.turnAsked(ask(member))
    one.decide(0)
    one.engineJoined(spec('b'))
    one.turnAsked(ask(3))
    expect(started(one)).toEqual(['3@b'])
    one.turnEnded(t(0), 100, 0)
    one.turnAsked(ask(0, { turn: 1, contextTokens: 120, engine: engineId('a') }))
    const decision = one.decide(0)
    expect(decision.assignments.map(x => `0@${x.engine}`)).toEqual([expected])
    expect(decision.evictions).toEqual(expected === '0@b' ? [{ trajectory: t(0), engine: 'a' }] : [])
    expect(decision.assignments[0]!.movedFrom).toBe(expected === '0@b' ? 'a' : null)
  }
})

test('where KV is plentiful a trajectory moves too, from an engine whose steps are longer', () => {
  const one = scheduler('kv-headroom', [spec('a', { kvTokens: 100_000 })], { quantile: null })
  for (let member = 0; member < 12; member++) one.turnAsked(ask(member, { boundTokens: 2000 }))
  one.decide(0)
  one.engineJoined(spec('b', { kvTokens: 100_000 }))
  one.turnAsked(ask(12, { boundTokens: 2000 }))
  expect(started(one)).toEqual(['12@b'])
  // 24 % of the KV of a is spoken for, 2 % of b's.
  for (let member = 0; member < 12; member++) {
    one.turnEnded(t(member), 100, 0)
    one.turnAsked(ask(member, { turn: 1, contextTokens: 120, boundTokens: 2000, engine: engineId('a') }))
  }
  const moved = started(one).filter(at => at.endsWith('@b'))
  expect(moved.length).toBeGreaterThanOrEqual(3)
  expect(moved.length).toBeLessThanOrEqual(6)
})

test('a turn that its engine has no KV for waits, though its trajectory has begun, until another one ends', () => {
  const one = scheduler('kv-headroom', [spec('a', { kvTokens: 400 })], { repinMargin: 1, quantile: null })
  for (const member of [0, 1]) one.turnAsked(ask(member, { boundTokens: 200 }))
  expect(started(one)).toEqual(['0@a', '1@a'])
  // Both outgrow what they were admitted for.
  one.turnEnded(t(0), 250, 0)
  one.turnAsked(ask(0, { turn: 1, contextTokens: 250, boundTokens: 390 }))
  expect(started(one)).toEqual(['0@a'])
  one.turnEnded(t(1), 200, 0)
  one.turnAsked(ask(1, { turn: 1, contextTokens: 200, boundTokens: 390 }))
  expect(started(one)).toEqual([])
  one.turnEnded(t(0), 300, 0)
  expect(started(one)).toEqual(['1@a'])
})

test('trajectories of an engine that left are placed elsewhere, ahead of those that have not begun', () => {
  for (const name of names) {
    const one = scheduler(name, [spec('a', { maxSequences: 2 })])
    for (const member of [7, 8, 9]) one.turnAsked(ask(member, { boundTokens: 100 }))
    expect(started(one)).toEqual(['7@a', '8@a'])
    one.turnEnded(t(8), 50, 0)
    expect(one.engineLeft(engineId('a'))).toEqual([t(7)])
    one.turnAsked(ask(1, { boundTokens: 100 }))
    one.turnAsked(ask(7, { contextTokens: 30, boundTokens: 100 }))
    one.turnAsked(ask(8, { turn: 1, contextTokens: 60, boundTokens: 100, engine: engineId('a') }))
    one.engineJoined(spec('b', { maxSequences: 2, prefixSharing: true }))
    const first = started(one)
    if (name === 'kv-headroom') expect(first).toEqual(['7@b', '8@b'])
    expect(first).toHaveLength(2)
  }
})

test('messages that come twice, late, or about strangers change nothing', () => {
  const one = scheduler('kv-headroom', [spec('a')])
  one.turnEnded(t(3), 40, 0)
  one.trajectoryReleased(t(3))
  one.turnAsked(ask(0))
  one.turnAsked(ask(0))
  expect(one.waitingTurns).toBe(1)
  expect(started(one)).toEqual(['0@a'])
  one.turnEnded(t(0), 40, 0)
  one.turnEnded(t(0), 40, 0)
  one.trajectoryReleased(t(0))
  one.trajectoryReleased(t(0))
  expect(one.decide(0).evictions).toEqual([{ trajectory: t(0), engine: 'a' }])
  expect(one.ledger.engine(engineId('a'))).toMatchObject({ running: 0, referencedTokens: 0, cachedTokens: 0 })
})

test('a new scheduler takes over running turns and the places that asks name', () => {
  const one = scheduler('kv-headroom', [spec('a'), spec('b')], { repinMargin: 1 })
  one.turnRunning(ask(0, { turn: 2, contextTokens: 90 }), engineId('b'))
  one.turnRunning(ask(2), engineId('a'))
  one.turnAsked(ask(1, { turn: 1, contextTokens: 80, engine: engineId('b') }))
  expect(one.ledger.engine(engineId('b'))).toMatchObject({ running: 1, waiting: 1 })
  expect(started(one)).toEqual(['1@b'])
})

test('a report of foreign requests keeps room for them', () => {
  const one = scheduler('kv-headroom', [spec('a')], { quantile: null })
  one.turnAsked(ask(0))
  expect(started(one)).toEqual(['0@a'])
  one.engineStatus({ engine: engineId('a'), kvTokens: 1000, referencedTokens: 900 })
  one.turnAsked(ask(1))
  expect(started(one)).toEqual([])
  one.engineStatus({ engine: engineId('a'), kvTokens: 1000, referencedTokens: 60 })
  expect(started(one)).toEqual(['1@a'])
})

test('where priority does not choose the victim, a larger share stays free', () => {
  const admitted = (prioritySign: -1 | 0) => {
    const one = scheduler('kv-headroom', [spec('a', { prioritySign })], { quantile: null })
    for (let member = 0; member < 10; member++) one.turnAsked(ask(member, { boundTokens: 100 }))
    return one.decide(0).assignments.length
  }
  expect([admitted(-1), admitted(0)]).toEqual([10, 9])
})

test('a group’s lengths make the guess only once most have ended, since the first to end are the short ones', () => {
  const lengths = new GroupLengths({ quantile: 0.9, minFinished: 4 })
  const estimate = () => lengths.estimate(g, t(99), 10, 8000)
  for (let member = 0; member < 32; member++) lengths.observe(g, t(member), 10)
  for (let member = 0; member < 31; member++) {
    lengths.observe(g, t(member), 100 + member)
    // Those that go on are longer by now.
    for (let other = member + 1; other < 32; other++) lengths.observe(g, t(other), 100 + member)
    lengths.finish(g, t(member))
    if (member < 27) expect(estimate()).toBe(8000)
  }
  expect(estimate()).toBe(128)
  expect(lengths.estimate(g, t(31), 129, 8000)).toBe(130)
  expect(lengths.estimate(g, t(31), 500, 8000)).toBe(8000)
  expect(new GroupLengths({ quantile: null }).estimate(g, t(0), 10, 8000)).toBe(8000)
})

interface Load {
  readonly engines: readonly EngineSpec[]
  readonly trajectories: readonly {
    readonly prompt: number
    readonly turns: readonly number[]
    readonly toolMs: number
  }[]
}

const anyLoad: fc.Arbitrary<Load> = fc.record({
  engines: fc
    .array(
      fc.record({
        kvTokens: fc.integer({ min: 300, max: 2000 }),
        maxSequences: fc.integer({ min: 1, max: 6 }),
        prefixSharing: fc.boolean(),
      }),
      {
        minLength: 1,
        maxLength: 3,
      },
    )
    .map(all => all.map((one, i) => spec(`e${i}`, { ...one, contextTokens: 2000 }))),
  trajectories: fc.array(
    fc.record({
      prompt: fc.integer({ min: 1, max: 60 }),
      turns: fc.array(fc.integer({ min: 1, max: 70 }), { minLength: 1, maxLength: 3 }),
      toolMs: fc.integer({ min: 0, max: 50_000 }),
    }),
    { minLength: 1, maxLength: 30 },
  ),
})

/** Plays a load to its end, on a clock that shows `clockMs` at its beginning: each turn takes a ms a token. Checks what no policy may break on the way. */
function play(
  one: Scheduler,
  load: Load,
  lose: EngineId | null,
  clockMs = 0,
): { readonly order: string[]; readonly leftOver: number } {
  const events: { at: number; run(): void }[] = []
  const later = (at: number, run: () => void) => events.push({ at, run })
  const order: string[] = []
  const generation = new Map<TrajectoryId, number>()
  const state = load.trajectories.map((what, member) => ({ ...what, member, turn: 0, context: what.prompt }))
  let open = state.length
  let now = 0
  const request = (one_: (typeof state)[number]) =>
    one.turnAsked(
      ask(one_.member, {
        turn: one_.turn,
        contextTokens: one_.context,
        promptTokens: one_.prompt,
        boundTokens: 290,
        group: groupId(`g${one_.member >> 2}`),
      }),
    )
  for (const engine of load.engines) one.engineJoined(engine)
  for (const each of state) request(each)
  const lost = lose
  if (lost !== null) {
    later(37, () => {
      for (const trajectory of one.engineLeft(lost)) {
        generation.set(trajectory, -1)
        request(state[partsOf(trajectory).member]!)
      }
    })
  }
  for (let guard = 0; guard < 10_000; guard++) {
    for (const { trajectory, engine } of one.decide(clockMs + now).assignments) {
      const each = state[partsOf(trajectory).member]!
      const id = guard
      order.push(`${now} ${trajectory}#${each.turn}@${engine}`)
      generation.set(trajectory, id)
      const account = one.ledger.engine(engine)!
      expect(account.running).toBeLessThanOrEqual(account.spec.maxSequences)
      later(now + each.turns[each.turn]!, () => {
        if (generation.get(trajectory) !== id) return
        each.context += each.turns[each.turn]!
        each.turn++
        one.turnEnded(trajectory, each.context, clockMs + now)
        if (each.turn === each.turns.length) {
          one.trajectoryReleased(trajectory)
          open--
        } else {
          later(now + each.toolMs, () => {
            each.context += 5
            request(each)
          })
        }
      })
    }
    for (const account of one.ledger.engines) {
      for (const sum of [account.referencedTokens, account.cachedTokens]) expect(sum).toBeGreaterThanOrEqual(0)
    }
    events.sort((a, b) => b.at - a.at)
    const next = events.pop()
    if (!next) break
    now = next.at
    next.run()
  }
  return { order, leftOver: open }
}

test('no policy ever stops with work left, runs more than an engine’s sequences, or decides otherwise a second time', () => {
  fc.assert(
    fc.property(anyLoad, fc.constantFrom(...names), fc.boolean(), (load, name, loses) => {
      const lose = loses && load.engines.length > 1 ? load.engines[0]!.engine : null
      const first = play(createScheduler(name), load, lose)
      expect(first.leftOver).toBe(0)
      expect(play(createScheduler(name), load, lose)).toEqual(first)
    }),
    { numRuns: 300 },
  )
})

test('whatever a clock shows, decisions are the same: only differences of times count', () => {
  // Many at once on little KV, so that turns are paused.
  const crowd = anyLoad.map(({ engines, trajectories }) => ({
    engines: engines.map(engine => ({ ...engine, kvTokens: 400 })),
    trajectories: [...trajectories, ...trajectories].map(one => ({
      ...one,
      turns: [...one.turns, ...one.turns.slice(1)],
    })),
  }))
  fc.assert(
    fc.property(
      crowd,
      fc.constantFrom(...names),
      fc.constantFrom(1, 1_000_000, 1_764_000_000_000),
      (load, name, ms) => {
        expect(play(createScheduler(name), load, null, ms)).toEqual(play(createScheduler(name), load, null))
      },
    ),
    { numRuns: 40 },
  )
})

test('kv-headroom with bounds never refers to more KV than there is, but for a single trajectory', () => {
  fc.assert(
    fc.property(anyLoad, load => {
      const one = createScheduler('kv-headroom', { quantile: null, toolHalfLifeMs: Number.POSITIVE_INFINITY })
      const decide = one.decide.bind(one)
      one.decide = now => {
        const decision = decide(now)
        for (const {
          spec: { engine, kvTokens },
          running,
          waiting,
          inTool,
        } of one.ledger.engines) {
          if (running + waiting + inTool > 1)
            expect(one.ledger.committedTokens(engine, now)).toBeLessThanOrEqual(kvTokens)
        }
        return decision
      }
      expect(play(one, load, null).leftOver).toBe(0)
    }),
    { numRuns: 100 },
  )
})

test('a heap gives its items in order, also after some were taken out of its middle', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.integer(), fc.boolean())), entries => {
      const items = entries.map(([key, out], i) => ({ key, out, i, heapIndex: -1 }))
      const heap = new Heap<HeapItem & { key: number; i: number }>((a, b) => a.key - b.key || a.i - b.i)
      for (const item of items) heap.push(item)
      for (const item of items) if (item.out) heap.remove(item)
      const left = items.filter(item => !item.out).sort((a, b) => a.key - b.key || a.i - b.i)
      expect(heap.size).toBe(left.length)
      for (const item of left) expect(heap.pop()).toBe(item)
      expect(heap.pop()).toBeUndefined()
    }),
  )
})

test('an unknown policy and options out of range are refused by name', () => {
  expect(() => createScheduler('fifo' as PolicyName)).toThrow(
    "unknown scheduling policy 'fifo'; known policies: static, static-async",
  )
  expect(() => createScheduler('static', { repinMargin: 3 })).toThrow('repinMargin is 3; expected a share')
  expect(() => createScheduler('static', { quantile: 1 })).toThrow('quantile is 1')
})
