/** The scheduler's part in a run of many processes: engines that die without a word, and schedulers that take over. */
import { coordinator } from '../../../actors/rollouts/coordinator'
import { type SchedulerState, scheduler } from '../../../actors/scheduling/scheduler'
import type { Command, EngineStatus, GenerateTurn } from '../../../messages/commands'
import type { EngineJoined, Fact, RolloutStarted } from '../../../messages/facts'
import { type EngineId, engineId, epoch, groupId, policyVersion } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import { answer, claim, completed, requested, toolCall } from '../../support/facts'
import { originAt, world } from '../../support/world'

const joined = (name: string): EngineJoined => ({
  ...{
    type: 'engine.joined',
    at: 0,
    engine: engineId(name),
    kind: 'local',
    model: 'm',
    kvTokens: 4096,
    blockTokens: 16,
  },
  ...{ maxSequences: 8, contextTokens: 1024, prefixSharing: false, prioritySign: -1 },
})
const applied = (name: string, version = 0): Fact => ({
  ...{ type: 'weights.applied', at: 0, engine: engineId(name), version: policyVersion(version), digest: '' },
})
const status = (name: string): EngineStatus => ({
  ...{ type: 'engine.status', at: 0, engine: engineId(name), version: policyVersion(0), kvTokens: 4096 },
  ...{ referencedTokens: 0, cachedTokens: 0, running: 0, waiting: 0, generatedTokens: 0, prefilledTokens: 0 },
  ...{ preemptions: 0, busyMs: 0, cpuMs: 0, maxRssBytes: 0 },
})

/** A turn as a coordinator asks for it. */
function asked(group: string): GenerateTurn {
  const w = world(coordinator({ turnTimeoutMs: 60_000 }))
  w.append(claim(), requested(group, 0))
  return w.commands.find(command => command.type === 'turn.generate')!
}

function rig({ behindMs }: { behindMs?: number | undefined } = {}) {
  const behaviour = scheduler('kv-headroom', { silentMs: 5000, ...(behindMs === undefined ? {} : { behindMs }) })
  const fx = manualEffects(1000)
  let state: SchedulerState = behaviour.initial()
  const facts: Fact[] = []
  const starts: RolloutStarted[] = []
  const commands: Command[] = []
  const decide = (input: Parameters<typeof behaviour.decide>[1]) => {
    const decision = behaviour.decide(state, input, fx)
    for (const fact of decision.facts) {
      if (fact.type === 'rollout.started') starts.push(fact)
      else facts.push(fact)
    }
    commands.push(...decision.commands)
    for (const fact of decision.facts) if (fact.type === 'engine.left') tell(fact)
  }
  function tell(fact: Fact): void {
    const before = state
    state = behaviour.evolve(before, fact, originAt(0))
    if (state !== before) decide(fact)
  }
  return {
    /** What the scheduler wrote, apart from the starts of rollouts. */
    facts,
    starts,
    commands,
    decide,
    tell,
    /** As a refold does: nothing is decided. */
    refold(fact: Fact) {
      state = behaviour.evolve(state, fact, originAt(0))
    },
    ledger: () => state.scheduler.ledger,
    assigned: (): readonly EngineId[] =>
      commands.flatMap(command => (command.type === 'turn.assign' ? [command.engine] : [])),
    /** Seconds, in each of which these engines speak. */
    pass(seconds: number, ...engines: readonly string[]) {
      for (let second = 0; second < seconds; second++) {
        fx.advance(1000)
        for (const name of engines) decide(status(name))
        decide({ type: 'tick' })
      }
    },
    sleep: (ms: number) => fx.advance(ms),
  }
}

test('a rollout has started when its first turn goes to an engine, once, and not while it waits in the queue', () => {
  const r = rig()
  const groups = Array.from({ length: 9 }, (_, n) => `g${n}`)
  for (const group of groups) r.decide(asked(group))
  expect(r.starts).toEqual([])
  r.tell(joined('a'))
  r.tell(applied('a'))
  r.decide(status('a'))
  // The engine runs 8 sequences; the ninth waits for 4 seconds.
  expect(r.starts.map(({ trajectory, engine }) => [trajectory, engine])).toEqual(
    groups.slice(0, 8).map(group => [`${group}/0`, 'a']),
  )
  r.pass(4, 'a')
  const first = asked('g0')
  r.tell({ ...completed(first, toolCall('1')), engine: engineId('a') })
  r.pass(1, 'a')
  expect(r.starts.slice(8)).toMatchObject([{ trajectory: 'g8/0', at: expect.any(Number) }])
  expect(r.starts[8]!.at).toBeGreaterThanOrEqual(r.starts[0]!.at + 4000)
  r.tell({ ...completed(asked('g1'), answer('4')), engine: engineId('a') })
  r.decide({ ...first, turn: 1 })
  expect(r.assigned()).toHaveLength(10)
  expect(r.starts).toHaveLength(9)
})

test('an engine that dies without a word leaves after a while, and its turns are asked for again', () => {
  const r = rig()
  r.tell(joined('a'))
  r.tell(applied('a'))
  r.decide(asked('g'))
  expect(r.assigned()).toEqual(['a'])
  r.pass(4)
  expect(r.facts).toEqual([])
  r.pass(2)
  expect(r.facts).toMatchObject([
    { type: 'engine.left', engine: 'a', reason: expect.stringContaining('5000 ms') },
    { type: 'turn.interrupted', engine: 'a', turn: 0, attempt: 0, reason: 'engine-lost' },
  ])
  r.pass(10)
  expect(r.facts).toHaveLength(2)
})

test('an engine that never says how it is rests longer each time, though its turns are completed, until it speaks', () => {
  const r = rig()
  const rests = () => r.facts.flatMap(f => (f.type === 'engine.left' ? [f.retryAfterMs] : []))
  const comes = (group: string) => {
    r.tell(joined('a'))
    r.tell(applied('a'))
    r.decide(asked(group))
    r.tell({ ...completed(asked(group), answer('4')), engine: engineId('a') })
  }
  for (let again = 0; again < 6; again++) {
    comes(`g${again}`)
    r.pass(6)
  }
  expect(rests()).toEqual([5000, 10_000, 20_000, 40_000, 60_000, 60_000])
  r.tell(joined('a'))
  r.pass(1, 'a')
  comes('h')
  r.pass(6)
  expect(rests().at(-1)).toBe(5000)
})

test.each([
  ['ended by themselves', 6, undefined],
  ['were cut off by their group’s deadline', 200, 'deadline' as const],
])(
  'what a member may grow to follows the lengths of others that ended, not of those cut off: %s',
  (_what, expected, cut) => {
    const { tell, decide, ledger } = rig()
    tell(joined('a'))
    tell(applied('a'))
    decide(status('a'))
    const w = world(coordinator({ turnTimeoutMs: 60_000 }))
    const members = [0, 1, 2, 3, 4]
    w.append(claim(), ...members.map(member => requested('g', member)))
    const asks = w.commands.filter(command => command.type === 'turn.generate')
    for (const ask of asks) decide({ ...ask, boundTokens: 200 })
    w.commands.length = 0
    if (cut !== undefined) {
      w.append({ type: 'group.closed', at: 0, group: groupId('g'), epoch: epoch(0), reason: cut, rewarded: [] })
    }
    for (const ask of asks.slice(0, 4)) {
      const ended = completed(ask, answer('4'), { engine: engineId('a'), tokens: Int32Array.of(1, 2, 3) })
      tell(ended)
      w.append(ended)
    }
    for (const command of w.commands) {
      if (command.type === 'trajectory.release' && command.trajectory !== asks[4]!.trajectory) decide(command)
    }
    const last = asks[4]!
    tell(completed(last, toolCall('1'), { engine: engineId('a'), tokens: Int32Array.of(1) }))
    expect(ledger().holding(last.trajectory)!.needTokens).toBe(expected)
  },
)

test('how far the ledger is from what an engine says is told with each report of it, once it takes turns', () => {
  const { tell, decide, commands } = rig()
  const said = () =>
    commands
      .filter(command => command.type === 'ledger.status')
      .map(({ engine, driftTokens, foreignTokens }) => ({ engine, driftTokens, foreignTokens }))
  decide(status('a'))
  expect(said()).toEqual([])
  tell(joined('a'))
  tell(applied('a'))
  decide(status('a'))
  const ask = asked('g')
  decide({ ...ask, boundTokens: 64 })
  // A context of 3 tokens in blocks of 16; it may grow to 64.
  decide({ ...status('a'), referencedTokens: 48 })
  decide({ ...status('a'), referencedTokens: 100 })
  const engine = engineId('a')
  expect(said()).toEqual([
    { engine, driftTokens: 0, foreignTokens: 0 },
    { engine, driftTokens: 32, foreignTokens: 0 },
    { engine, driftTokens: 84, foreignTokens: 36 },
  ])
})

test('an engine that speaks stays, and time in which the scheduler itself stood still counts against nobody', () => {
  const r = rig()
  r.tell(joined('a'))
  r.tell(applied('a'))
  r.pass(30, 'a')
  r.sleep(600_000)
  r.pass(3)
  expect(r.facts).toEqual([])
})

test('a scheduler that takes over gives turns only to engines that it has heard, and says of the others that they left', () => {
  const r = rig()
  for (const name of ['dead', 'alive']) {
    r.refold(joined(name))
    r.refold(applied(name))
  }
  r.decide(asked('g'))
  expect(r.assigned()).toEqual([])
  r.pass(1, 'alive')
  expect(r.assigned()).toEqual(['alive'])
  r.pass(6, 'alive')
  expect(r.facts).toMatchObject([{ type: 'engine.left', engine: 'dead' }])
})

describe('an engine whose turns fail', () => {
  const failed = (group: string, error = 'HTTP 500'): Fact => ({
    ...{ type: 'turn.interrupted', at: 0, trajectory: asked(group).trajectory, turn: 0, attempt: 0 },
    ...{ engine: engineId('a'), tokens: new Int32Array(), logprobs: new Float32Array(), segments: [] },
    ...{ reason: 'engine-error', error },
  })
  const begun = () => {
    const r = rig()
    r.tell(joined('a'))
    r.tell(applied('a'))
    const rests = () => r.facts.flatMap(f => (f.type === 'engine.left' ? [f.retryAfterMs] : []))
    /** Turns of other trajectories that fail. */
    const fail = (times: number, from = 0) => {
      for (let n = from; n < from + times; n++) {
        r.decide(asked(`g${n}`))
        r.tell(failed(`g${n}`))
      }
    }
    return { ...r, rests, fail }
  }

  test('rests after five in a row, longer each time, and no longer once a turn was completed', () => {
    const r = begun()
    r.fail(4)
    expect(r.rests()).toEqual([])
    r.fail(1, 4)
    expect(r.rests()).toEqual([5000])
    const { reason } = r.facts.find(f => f.type === 'engine.left') as { reason: string }
    expect(reason).toBe('its last 5 turns failed, the last with: HTTP 500')
    r.decide(asked('h'))
    expect(r.assigned()).toHaveLength(5)
    for (let again = 0; again < 5; again++) {
      r.tell(joined('a'))
      r.tell(applied('a'))
      r.fail(5, 100 + 5 * again)
    }
    expect(r.rests()).toEqual([5000, 10_000, 20_000, 40_000, 60_000, 60_000])
    r.tell(joined('a'))
    r.tell(applied('a'))
    r.tell({ ...completed(asked('k'), answer('4')), engine: engineId('a') })
    r.fail(5, 200)
    expect(r.rests().at(-1)).toBe(5000)
  })

  test('is sent to rest once, whatever else of it fails before that is read', () => {
    const behaviour = scheduler('kv-headroom')
    const fx = manualEffects(1000)
    let state = behaviour.initial()
    const facts: Fact[] = []
    const tell = (fact: Fact, decides = true) => {
      state = behaviour.evolve(state, fact, originAt(0))
      if (decides) facts.push(...behaviour.decide(state, fact as never, fx).facts)
    }
    for (const fact of [joined('a'), applied('a')]) tell(fact)
    for (let n = 0; n < 32; n++) behaviour.decide(state, asked(`g${n}`), fx)
    for (let n = 0; n < 32; n++) tell(failed(`g${n}`))
    expect(facts.filter(f => f.type === 'engine.left')).toMatchObject([{ retryAfterMs: 5000 }])
    // Another life of the scheduler reads the same, and does not send it away again when it is back.
    const left = facts.find(f => f.type === 'engine.left')!
    state = behaviour.initial()
    for (const fact of [joined('a'), applied('a'), ...Array.from({ length: 32 }, (_, n) => failed(`g${n}`)), left]) {
      tell(fact, false)
    }
    facts.length = 0
    for (const fact of [joined('a'), applied('a')]) tell(fact)
    expect(facts).toEqual([])
    for (let n = 0; n < 5; n++) tell(failed(`h${n}`))
    expect(facts.filter(f => f.type === 'engine.left')).toMatchObject([{ retryAfterMs: 10_000 }])
  })

  test('stays while some succeed, and while one trajectory alone fails', () => {
    const r = begun()
    for (let round = 0; round < 5; round++) {
      r.fail(4, 10 * round)
      r.tell({ ...completed(asked(`k${round}`), answer('4')), engine: engineId('a') })
    }
    for (let n = 0; n < 20; n++) r.tell(failed('poison'))
    expect(r.rests()).toEqual([])
  })
})

test.each([
  [undefined, 60],
  [240_000, 240],
])(
  'turns wait (%p ms, by default a minute) for an engine that has not the weights which they need, and then it rests',
  (behindMs, seconds) => {
    const r = rig({ behindMs })
    for (const name of ['a', 'b']) {
      r.tell(joined(name))
      r.tell(applied(name))
    }
    r.decide({ ...asked('g'), minVersion: policyVersion(1) })
    r.pass(seconds + 40, 'a', 'b') // nobody has them: nobody is late
    expect(r.facts).toEqual([])
    r.tell(applied('a', 1))
    r.pass(seconds - 1, 'a', 'b')
    expect(r.assigned()).toEqual([])
    r.pass(2, 'a', 'b')
    expect(r.facts).toMatchObject([
      {
        ...{ type: 'engine.left', engine: 'b', retryAfterMs: 5000 },
        reason: `it is at version 0, and for ${1000 * seconds} ms has lacked weights that turns need and another engine has`,
      },
    ])
    expect(r.assigned()).toEqual(['a'])
  },
)

test('an engine that joins with older weights gets no turn that needs newer ones, queued before or asked later', () => {
  const r = rig()
  r.tell(joined('a'))
  r.tell(applied('a', 6))
  // Engine a runs 8 sequences, so two turns are queued when b joins.
  for (let n = 0; n < 10; n++) r.decide({ ...asked(`g${n}`), minVersion: policyVersion(6) })
  r.tell(joined('b'))
  r.tell(applied('b', 5))
  r.pass(2, 'a', 'b')
  r.decide({ ...asked('late'), minVersion: policyVersion(6) })
  r.pass(57, 'a', 'b')
  expect(r.assigned()).toEqual(Array.from({ length: 8 }, () => 'a'))
  expect(r.facts).toEqual([])
  r.tell(applied('b', 6))
  r.pass(1, 'a', 'b')
  expect(r.assigned().slice(8)).toEqual(['b', 'b', 'b'])
})

test('an engine that joins with older weights and never loads newer ones rests', () => {
  const r = rig()
  r.tell(joined('a'))
  r.tell(applied('a', 6))
  r.decide({ ...asked('g'), minVersion: policyVersion(6) })
  r.pass(100, 'a')
  r.tell(joined('b'))
  r.tell(applied('b', 5))
  r.pass(59, 'a', 'b')
  expect(r.facts).toEqual([])
  r.pass(2, 'a', 'b')
  expect(r.facts).toMatchObject([{ type: 'engine.left', engine: 'b' }])
})

test('an engine that is always behind rests, though the others go on to newer weights meanwhile', () => {
  const r = rig()
  r.tell(joined('a'))
  r.tell(applied('a', 6))
  r.decide({ ...asked('g6'), minVersion: policyVersion(6) })
  r.tell(joined('b'))
  r.tell(applied('b', 5))
  for (const number of [7, 8]) {
    r.pass(25, 'a', 'b')
    r.tell(applied('a', number))
    r.decide({ ...asked(`g${number}`), minVersion: policyVersion(number) })
    r.tell(applied('b', number - 1))
  }
  expect(r.facts).toEqual([])
  r.pass(15, 'a', 'b')
  expect(r.facts).toMatchObject([{ type: 'engine.left', engine: 'b' }])
})

test('an engine that has joined behind takes turns once none under way needs newer weights, and new ones wait for it', () => {
  const r = rig()
  r.tell(joined('a'))
  r.tell(applied('a', 6))
  const first = { ...asked('g6'), minVersion: policyVersion(6) }
  r.decide(first)
  r.tell(joined('b'))
  r.tell(applied('b', 5))
  r.pass(1, 'a', 'b')
  r.tell({ ...completed(first, answer('4')), engine: engineId('a') })
  r.decide({ type: 'trajectory.release', trajectory: first.trajectory, outcome: 'answered' })
  r.decide({ ...asked('g7'), minVersion: policyVersion(7) })
  r.pass(1, 'a', 'b')
  r.tell(applied('a', 7))
  r.pass(10, 'a', 'b')
  expect(r.assigned()).toEqual(['a'])
  r.tell(applied('b', 7))
  expect(r.assigned()).toHaveLength(2)
})

describe('an engine that is far slower than the others', () => {
  const begun = () => {
    const r = rig()
    for (const name of ['fast', 'slow']) {
      r.tell(joined(name))
      r.tell(applied(name))
    }
    /** A hundred turns of an engine, of which all but `bursts` take `ms` a token, and those ten times that. */
    const hundred = (name: string, ms: number, { bursts = 0, segments = 1 } = {}) => {
      for (let n = 0; n < 100; n++) {
        const turn = completed(asked(`${name}${n}`), answer('4'))
        const timing = {
          queuedAt: 0,
          startedAt: 0,
          firstTokenAt: 1000,
          endedAt: 1000 + 19 * ms * (n < bursts ? 10 : 1),
        }
        const tokens = Int32Array.from({ length: 20 }, (_, k) => k)
        const parts = Array.from({ length: segments }, () => turn.segments[0]!)
        r.tell({ ...turn, engine: engineId(name), tokens, timing, segments: parts })
      }
      r.pass(1, 'fast', 'slow')
    }
    const left = () => r.facts.flatMap(f => (f.type === 'engine.left' ? [{ ...f }] : []))
    return { ...r, hundred, left }
  }

  test('rests by the p99 of its turns, longer each time, until a hundred turns of it were in pace', () => {
    const r = begun()
    r.hundred('fast', 30)
    r.hundred('slow', 121)
    expect(r.left()).toMatchObject([
      {
        engine: 'slow',
        retryAfterMs: 5000,
        reason:
          'it is slow: the p99 of its last 100 turns is 121 ms per token, the median p99 of the other engines 30 ms',
      },
    ])
    const comesAgain = (ms: number) => {
      r.tell(joined('slow'))
      r.tell(applied('slow'))
      r.hundred('slow', ms)
    }
    comesAgain(121)
    comesAgain(30)
    r.hundred('slow', 121)
    expect(r.left().map(({ retryAfterMs }) => retryAfterMs)).toEqual([5000, 10_000, 5000])
  })

  test('rests when two of a hundred turns are, and stays when one is', () => {
    const r = begun()
    r.hundred('fast', 30)
    r.hundred('slow', 30, { bursts: 1 })
    expect(r.left()).toEqual([])
    r.hundred('slow', 30, { bursts: 2 })
    expect(r.left()).toMatchObject([{ engine: 'slow' }])
  })

  test('stays when it is the only one, when all are quick, and when its turns stood still for new weights', () => {
    const r = begun()
    r.hundred('slow', 500)
    r.hundred('fast', 2)
    r.hundred('slow', 99)
    r.hundred('slow', 500, { segments: 2 })
    expect(r.left()).toEqual([])
  })
})

test('when another scheduler takes over, coordinators ask again for what is out, and only for that', () => {
  const w = world(coordinator({ turnTimeoutMs: 60_000 }))
  w.append(claim(), requested('g', 0, { order: 0 }), requested('g', 1, { order: 1 }), requested('g', 2, { order: 2 }))
  const [first, second, third] = [w.takeCommand(0), w.takeCommand(0), w.takeCommand(0)] as GenerateTurn[]
  w.append(completed(first!, toolCall('print(1)')), completed(second!, answer('4')))
  w.commands.length = 0
  w.append({ type: 'scheduler.claimed', at: 0, partition: 0, owner: 'b' })
  expect(w.commands).toMatchObject([
    { type: 'tool.execute', trajectory: 'g/0', attempt: 1 },
    { type: 'turn.generate', trajectory: 'g/2', attempt: 1, seed: third!.seed },
  ])
  // The old scheduler's answer is late now.
  const facts = w.log.length
  w.append(completed(third!, answer('4')))
  expect(w.log).toHaveLength(facts + 1)
})

test('what a coordinator asks for when it takes over is asked once, though nothing of it is folded yet', () => {
  const behaviour = coordinator({ turnTimeoutMs: 60_000 })
  const former = world(behaviour)
  former.append(claim(), requested('g', 0), requested('g', 1, { order: 1 }))
  const fx = manualEffects(1_000_000) // long after the former one's asks
  const log = [...former.log, claim()]
  const fold = (facts: readonly Fact[], state = behaviour.initial(), from = 0) =>
    facts.reduce((before, fact, at) => behaviour.evolve(before, fact, originAt(from + at)), state)
  let state = fold(log)
  const { facts } = behaviour.pending(state, fx)
  expect(facts).toMatchObject([
    { type: 'turn.asked', attempt: 1 },
    { type: 'turn.asked', attempt: 1 },
  ])
  fx.advance(250)
  expect(behaviour.decide(state, { type: 'tick' }, fx).facts).toEqual([])
  const scheduler: Fact = { type: 'scheduler.claimed', at: 0, partition: 0, owner: 'b' }
  state = fold([scheduler], state, log.length)
  expect(behaviour.decide(state, scheduler, fx).facts).toEqual([])
  // Folded at last, they are asked again when their time is over.
  state = fold(facts, state, log.length + 1)
  const later = Array.from({ length: 61 }, () => {
    fx.advance(1000)
    return behaviour.decide(state, { type: 'tick' }, fx).facts
  })
  expect(later.flat()).toMatchObject([{ attempt: 2 }, { attempt: 2 }])
})

test('a reward that does not come is asked for again, once in every while', () => {
  const w = world(coordinator({ turnTimeoutMs: 60_000, verifyTimeoutMs: 10_000 }))
  w.append(claim(), requested('g', 0))
  w.append(completed(w.takeCommand(0) as GenerateTurn, answer('4')))
  const verifications = () => w.commands.filter(command => command.type === 'answer.verify').length
  expect(verifications()).toBe(1)
  w.tick(9000)
  expect(verifications()).toBe(1)
  for (let k = 0; k < 10; k++) w.tick(1000)
  expect(verifications()).toBe(2)
  w.append({
    type: 'reward.assigned',
    at: 0,
    trajectory: requested('g', 0).trajectory,
    attempt: 0,
    reward: 1,
    answer: '4',
    how: 't',
  })
  w.tick(60_000)
  expect(verifications()).toBe(2)
})
