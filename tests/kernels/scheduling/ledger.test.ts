/** The KV ledger against a recount from scratch after every operation, and its rules on small cases. */
import fc from 'fast-check'
import type { EngineSpec, Holding } from '../../../kernels/scheduling/kvAccount'
import { Ledger } from '../../../kernels/scheduling/ledger'
import { engineId, type GroupId, groupId, trajectoryId } from '../../../messages/ids'

const spec = (name: string, rest: Partial<EngineSpec> = {}): EngineSpec => ({
  engine: engineId(name),
  kvTokens: 1000,
  blockTokens: 16,
  maxSequences: 8,
  contextTokens: 1000,
  prefixSharing: true,
  prioritySign: -1,
  ...rest,
})

const g = groupId('g')
const a = engineId('a')
const rounded = (tokens: number): number => Math.ceil(Math.max(0, tokens) / 16) * 16

/** The sums of one engine, from its holdings alone. */
function recount(holdings: readonly Holding[], nowMs: number, halfLifeMs: number) {
  let referenced = 0
  let cached = 0
  let committed = 0
  const prompts = new Map<GroupId, Holding[]>()
  for (const one of holdings) {
    const own = one.tokens > 0 ? rounded(one.tokens - one.sharedTokens) : 0
    if (one.state === 'running') referenced += own
    else cached += own
    const need = rounded(Math.max(one.needTokens, one.tokens) - one.sharedTokens)
    committed += one.state === 'tool' ? need * 2 ** (-(nowMs - one.sinceMs) / halfLifeMs) : need
    if (one.sharedTokens > 0) prompts.set(one.group, [...(prompts.get(one.group) ?? []), one])
  }
  for (const sharers of prompts.values()) {
    const tokens = sharers[0]!.sharedTokens
    committed += tokens
    if (sharers.some(one => one.state === 'running')) referenced += tokens
    else if (sharers.some(one => one.tokens > 0)) cached += tokens
  }
  const count = (state: Holding['state']) => holdings.filter(one => one.state === state).length
  return { referenced, cached, committed, running: count('running'), waiting: count('waiting'), inTool: count('tool') }
}

const member = (index: number) => {
  const group = groupId(`g${index % 3}`)
  return { group, id: trajectoryId(group, index) }
}
const members = Array.from({ length: 12 }, (_, index) => member(index).id)
const held = (ledger: Ledger): readonly Holding[] => members.flatMap(id => ledger.holding(id) ?? [])

const operation = fc.record({
  kind: fc.constantFrom('admit', 'admit', 'run', 'run', 'grow', 'toTool', 'return', 'release', 'correct'),
  member: fc.nat({ max: 11 }),
  engine: fc.nat({ max: 1 }),
  tokens: fc.integer({ min: 1, max: 400 }),
  need: fc.integer({ min: 1, max: 600 }),
  after: fc.oneof(fc.nat({ max: 3000 }), fc.constant(2_000_000)),
})

test('after any operations every sum equals a recount, and none is negative', () => {
  fc.assert(
    fc.property(
      fc.array(operation, { maxLength: 80 }),
      fc.constantFrom(1000, Number.POSITIVE_INFINITY),
      (operations, halfLifeMs) => {
        const ledger = new Ledger({ toolHalfLifeMs: halfLifeMs })
        const engines = [spec('a'), spec('b', { prefixSharing: false })]
        for (const one of engines) ledger.join(one)
        let now = 0
        for (const { kind, member: index, engine, tokens, need, after } of operations) {
          now += after
          const { group, id } = member(index)
          // Members of one group have one prompt, but for one that differs.
          const promptTokens = index === 11 ? 90 : 40 + (index % 3) * 30
          const there = ledger.holding(id)
          if (kind === 'admit') {
            if (!there)
              ledger.admit({ trajectory: id, group, engine: engines[engine]!.engine, promptTokens, needTokens: need })
          } else if (kind === 'release') ledger.release(id)
          else if (kind === 'correct')
            ledger.correct(engines[engine]!.engine, { kvTokens: 1000, referencedTokens: tokens })
          else if (there) {
            if (kind === 'run') ledger.run(id, tokens)
            else if (kind === 'grow') ledger.grow(id, { needTokens: need })
            else if (kind === 'toTool') ledger.toTool(id, tokens, now)
            else ledger.return(id, need)
          }
          for (const account of ledger.engines) {
            const own = held(ledger).filter(one => one.engine === account.spec.engine)
            const expected = recount(own, now, halfLifeMs)
            expect(account).toMatchObject({
              referencedTokens: expected.referenced,
              cachedTokens: expected.cached,
              running: expected.running,
              waiting: expected.waiting,
              inTool: expected.inTool,
            })
            const committed = ledger.committedTokens(account.spec.engine, now)
            expect(Math.abs(committed - expected.committed)).toBeLessThan(1e-6 * (1 + expected.committed))
            for (const sum of [account.referencedTokens, account.cachedTokens, committed, account.foreignTokens]) {
              expect(sum).toBeGreaterThanOrEqual(0)
            }
          }
        }
        for (const { trajectory } of held(ledger)) ledger.release(trajectory)
        for (const account of ledger.engines) {
          expect(account).toMatchObject({ referencedTokens: 0, cachedTokens: 0, running: 0, waiting: 0, inTool: 0 })
          expect(ledger.committedTokens(account.spec.engine, now)).toBe(0)
        }
      },
    ),
    { numRuns: 300 },
  )
})

test('a group prompt counts once on an engine that shares prefixes, floored to blocks, and each time on one that does not', () => {
  for (const [prefixSharing, expected] of [
    [true, 32 + 2 * 32],
    [false, 2 * 64],
  ] as const) {
    const ledger = new Ledger()
    ledger.join(spec('a', { prefixSharing }))
    for (const member of [0, 1]) {
      const trajectory = trajectoryId(g, member)
      ledger.admit({ trajectory, group: g, engine: a, promptTokens: 40, needTokens: 100 })
      ledger.run(trajectory, 60)
    }
    expect(ledger.engine(a)).toMatchObject({ referencedTokens: expected, cachedTokens: 0 })
  }
})

test('what a start and an admission would add is what they add', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 200 }),
      fc.integer({ min: 1, max: 300 }),
      fc.boolean(),
      (prompt, more, prefixSharing) => {
        const ledger = new Ledger()
        ledger.join(spec('a', { prefixSharing }))
        for (const member of [0, 1, 2]) {
          const trajectory = trajectoryId(g, member)
          const adds = ledger.addedTokens(a, g, prompt, prompt + more)
          const before = ledger.committedTokens(a, 0)
          ledger.admit({ trajectory, group: g, engine: a, promptTokens: prompt, needTokens: prompt + more })
          expect(ledger.committedTokens(a, 0) - before).toBe(adds)
          const starts = ledger.startTokens(trajectory, prompt)
          const referenced = ledger.engine(a)!.referencedTokens
          ledger.run(trajectory, prompt)
          expect(ledger.engine(a)!.referencedTokens - referenced).toBe(starts)
        }
      },
    ),
  )
})

test('in a tool, tokens are cached and no longer referenced, and their claim halves with every half-life', () => {
  const ledger = new Ledger({ toolHalfLifeMs: 1000 })
  ledger.join(spec('a', { prefixSharing: false }))
  const trajectory = trajectoryId(g, 0)
  ledger.admit({ trajectory, group: g, engine: a, promptTokens: 16, needTokens: 320 })
  ledger.run(trajectory, 16)
  ledger.toTool(trajectory, 64, 5000)
  expect(ledger.engine(a)).toMatchObject({ referencedTokens: 0, cachedTokens: 64 })
  expect([5000, 6000, 7000].map(now => ledger.committedTokens(a, now))).toEqual([320, 160, 80])
  ledger.return(trajectory, 320)
  expect(ledger.committedTokens(a, 9000)).toBe(320)
})

test('a report shows the error of the ledger, and counts as foreign only what running trajectories cannot explain', () => {
  const ledger = new Ledger()
  ledger.join(spec('a', { prefixSharing: false }))
  const trajectory = trajectoryId(g, 0)
  ledger.admit({ trajectory, group: g, engine: a, promptTokens: 16, needTokens: 320 })
  ledger.run(trajectory, 16)
  ledger.correct(a, { kvTokens: 1000, referencedTokens: 200 })
  expect(ledger.engine(a)).toMatchObject({ driftTokens: 184, foreignTokens: 0 })
  ledger.correct(a, { kvTokens: 2000, referencedTokens: 500 })
  expect(ledger.engine(a)).toMatchObject({ driftTokens: 484, foreignTokens: 180, spec: { kvTokens: 2000 } })
  ledger.correct(a, { kvTokens: 2000, referencedTokens: 0 })
  expect(ledger.engine(a)).toMatchObject({ driftTokens: -16, foreignTokens: 0 })
  for (const wrong of [Number.NaN, -1, Number.POSITIVE_INFINITY]) {
    ledger.correct(a, { kvTokens: 2000, referencedTokens: wrong })
    ledger.correct(a, { kvTokens: wrong, referencedTokens: 500 })
    const unchanged = { driftTokens: -16, foreignTokens: 0, spec: { kvTokens: 2000 } }
    expect(ledger.engine(a)).toMatchObject(unchanged)
  }
})

test('an engine that leaves takes its holdings with it', () => {
  const ledger = new Ledger()
  ledger.join(spec('a'))
  ledger.join(spec('b'))
  ledger.admit({ trajectory: trajectoryId(g, 0), group: g, engine: a, promptTokens: 16, needTokens: 32 })
  ledger.admit({ trajectory: trajectoryId(g, 1), group: g, engine: engineId('b'), promptTokens: 16, needTokens: 32 })
  expect(ledger.leave(a)).toEqual([trajectoryId(g, 0)])
  expect([0, 1].map(one => ledger.holding(trajectoryId(g, one))?.engine)).toEqual([undefined, engineId('b')])
  expect(ledger.leave(a)).toEqual([])
})

test('an engine without KV, one that has joined, and a trajectory that is nowhere are refused', () => {
  const ledger = new Ledger()
  expect(() => ledger.join(spec('a', { kvTokens: 0 }))).toThrow('kvTokens is 0')
  ledger.join(spec('a'))
  expect(() => ledger.join(spec('a'))).toThrow('has joined already')
  expect(() => ledger.run(trajectoryId(g, 0), 5)).toThrow('g/0 is on no engine')
})
