/** The dispatcher without any bus: executors, faults and time are the test's. */
import fc from 'fast-check'
import { type DispatcherState, dispatcher } from '../../../actors/tools/dispatcher'
import { toolKey } from '../../../actors/tools/toolPort'
import type { AssignTools, ExecuteTool, OfferSlots } from '../../../messages/commands'
import { epoch, executorId, groupId, trajectoryId } from '../../../messages/ids'
import { manualEffects } from '../../../runtime/effects'
import type { Behaviour } from '../../../runtime/host/behaviour'

const leaseMs = 5000
const call = (member: number, change: Partial<ExecuteTool> = {}): ExecuteTool => ({
  ...{ type: 'tool.execute', trajectory: trajectoryId(groupId('g'), member), turn: 0, call: 0, attempt: 0 },
  ...{ epoch: epoch(0), tool: 'python', arguments: { code: 'print(1)' }, timeoutMs: 1000, responseChars: 100 },
  ...change,
})

type Input<B> = B extends Behaviour<DispatcherState, infer I, never> ? I : never
type Said = Input<ReturnType<typeof dispatcher>>

/** A dispatcher and what it has assigned so far. */
function start(options: Parameters<typeof dispatcher>[0] = {}) {
  const behaviour = dispatcher({ leaseMs, ...options })
  const fx = manualEffects(0)
  const state = behaviour.initial()
  const alarms: string[] = []
  function tell(input: Said | { readonly type: 'tick' }): AssignTools[] {
    const { facts, commands } = behaviour.decide(state, input, fx)
    const settled = behaviour.settle!(state, fx)
    for (const fact of facts) if (fact.type === 'alarm.raised') alarms.push(fact.message)
    return [...commands, ...settled.commands].filter(command => command.type === 'tools.assign')
  }
  return {
    state,
    alarms,
    tell,
    ask: (...calls: readonly ExecuteTool[]) => calls.flatMap(tell),
    offer: (id: string, slots: number, held: readonly string[] = [], tools: readonly string[] = ['python']) =>
      tell({ type: 'executor.slots', executor: executorId(id), incarnation: `${id}-0`, slots, tools, held }),
    end: (id: string, slots: number, ...calls: readonly ExecuteTool[]) =>
      tell({ type: 'tools.ended', executor: executorId(id), incarnation: `${id}-0`, slots, calls: calls.map(toolKey) }),
    /** Time passes in steps of a tick, as it does for a host. */
    pass(ms: number): AssignTools[] {
      const assigned: AssignTools[] = []
      for (let at = 0; at < ms; at += 250) {
        fx.advance(250)
        assigned.push(...tell({ type: 'tick' }))
      }
      return assigned
    },
    stall: (ms: number) => fx.advance(ms),
  }
}

const members = (assigned: readonly AssignTools[]) =>
  assigned.flatMap(({ executor, calls }) => calls.map(ask => `${executor}:${ask.trajectory.split('/')[1]}`))

test('calls wait until somebody offers slots, and nobody gets more than it offers', () => {
  const d = start()
  expect(d.ask(call(0), call(1), call(2))).toEqual([])
  expect(members(d.offer('a', 2))).toEqual(['a:0', 'a:1'])
  expect(d.offer('a', 2, [toolKey(call(0)), toolKey(call(1))])).toEqual([])
  expect(members(d.end('a', 2, call(0)))).toEqual(['a:2'])
  expect(d.state.waiting).toBe(0)
})

test('executors get calls in proportion to their slots', () => {
  const d = start()
  d.offer('small', 1)
  d.offer('large', 4)
  const assigned = d.ask(...Array.from({ length: 5 }, (_, member) => call(member)))
  expect(assigned.filter(a => a.executor === 'large')).toHaveLength(4)
})

test('a command holds at most 64 calls, and no more of their text than fits into a record', () => {
  const d = start()
  d.ask(...Array.from({ length: 100 }, (_, member) => call(member)))
  expect(d.offer('a', 100).map(({ calls }) => calls.length)).toEqual([64, 36])
  const large = { code: 'x'.repeat(400_000) }
  d.ask(...Array.from({ length: 3 }, (_, member) => call(1000 + member, { arguments: large })))
  expect(d.offer('b', 10).map(({ calls }) => calls.length)).toEqual([1, 1, 1])
})

test('calls that come together are assigned together: one command for each executor', () => {
  const behaviour = dispatcher()
  const [state, fx] = [behaviour.initial(), manualEffects(0)]
  const slots = { type: 'executor.slots', incarnation: '0', slots: 8, tools: ['python'], held: [] } as const
  for (const id of ['a', 'b']) behaviour.decide(state, { ...slots, executor: executorId(id) }, fx)
  for (let member = 0; member < 10; member++) expect(behaviour.decide(state, call(member), fx).commands).toEqual([])
  const assigned = behaviour.settle!(state, fx).commands as AssignTools[]
  expect(assigned.map(({ executor, calls }) => [executor, calls.length])).toEqual([
    ['a', 5],
    ['b', 5],
  ])
})

test('what an executor does not say it holds is given to another when its lease ends, and what it holds is not', () => {
  const d = start()
  d.offer('a', 2)
  d.ask(call(0), call(1))
  d.pass(1000)
  d.offer('b', 1)
  for (let second = 0; second < 10; second++) {
    d.offer('a', 2, [toolKey(call(0))])
    expect(members(d.pass(1000))).toEqual(second === 4 ? ['b:1'] : [])
    d.offer('b', 1, second >= 4 ? [toolKey(call(1))] : [])
  }
})

test('all calls of an executor that falls silent are assigned elsewhere after its lease, before those that wait', () => {
  const d = start()
  d.offer('a', 2)
  d.ask(call(0), call(1), call(2))
  const assigned: string[] = []
  for (let second = 0; second < 8; second++) {
    assigned.push(...members(d.offer('b', second < 4 ? 0 : 1, [])), ...members(d.pass(1000)))
  }
  expect(assigned[0]).toBe('b:2') // it came before the lease had ended
  const next = [...members(d.end('b', 1, call(2))), ...members(d.end('b', 1, call(0)))]
  expect(next).toEqual(['b:0', 'b:1'])
})

test('an answer after the lease ended is taken: the call is not made again if it has not been begun elsewhere', () => {
  const d = start()
  d.offer('a', 1)
  d.ask(call(0))
  d.pass(6000)
  expect(d.state.waiting).toBe(1)
  d.end('a', 1, call(0))
  expect(d.state.waiting).toBe(0)
  expect(d.state.calls.size).toBe(0)
  expect(d.offer('b', 1)).toEqual([])
})

test('an executor that was silent too long and still holds its calls keeps them', () => {
  const d = start()
  d.offer('a', 1)
  d.ask(call(0))
  d.pass(6000)
  expect(d.offer('a', 1, [toolKey(call(0))])).toEqual([])
  expect(d.state.waiting).toBe(0)
  expect(d.offer('b', 1)).toEqual([])
})

test('an executor that leaves has its calls taken back at once, but for those that it still runs', () => {
  const d = start()
  d.offer('a', 3)
  d.ask(call(0), call(1), call(2))
  d.offer('b', 3)
  expect(members(d.offer('a', 0, [toolKey(call(0))]))).toEqual(['b:1', 'b:2'])
  d.end('a', 0, call(0))
  expect([...d.state.executors.values()].map(e => e.id)).toEqual(['b'])
})

test('an executor that starts again under its name is another one; calls of its former start come back', () => {
  const d = start()
  d.offer('a', 1)
  d.ask(call(0))
  const again: OfferSlots = {
    ...{ type: 'executor.slots', executor: executorId('a'), incarnation: 'a-1', slots: 1, tools: ['python'], held: [] },
  }
  const assigned: AssignTools[] = []
  for (let second = 0; second < 7; second++) assigned.push(...d.tell(again), ...d.pass(1000))
  expect(assigned.map(a => a.incarnation)).toEqual(['a-1'])
})

test('a dispatcher that itself stood still takes nobody for dead', () => {
  const d = start()
  d.offer('a', 1)
  d.offer('b', 1, ['somebody-else#0#0#0'])
  d.ask(call(0))
  d.stall(60_000)
  expect(d.pass(250)).toEqual([])
  expect(d.state.executors.size).toBe(2)
})

test('leases outlast a backlog, behind which the reports that renew them stand', () => {
  const behaviour = dispatcher({ leaseMs })
  const [state, fx] = [behaviour.initial(), manualEffects(0)]
  const slots = {
    type: 'executor.slots',
    executor: executorId('a'),
    incarnation: '0',
    slots: 1,
    tools: ['python'],
  } as const
  behaviour.decide(state, { ...slots, held: [] }, fx)
  behaviour.decide(state, call(0), fx)
  behaviour.settle!(state, fx)
  for (let batch = 0; batch < 20; batch++) {
    for (let k = 0; k < 512; k++) {
      if (k % 128 === 0) fx.advance(125)
      behaviour.decide(state, call(1 + 512 * batch + k), fx)
    }
    behaviour.settle!(state, fx)
    behaviour.decide(state, { type: 'tick' }, fx)
  }
  expect(state.executors.size).toBe(1)
  expect(state.waiting).toBe(20 * 512)
  for (let tick = 0; tick < 21; tick++) {
    fx.advance(250)
    behaviour.decide(state, { type: 'tick' }, fx)
  }
  expect(state.executors.size).toBe(0)
})

test('a dispatcher that took over from another counts what executors hold already, until they say that it ended', () => {
  const d = start()
  const [before, other] = [call(100), call(101)]
  d.offer('a', 3, [toolKey(before), toolKey(other)])
  expect(members(d.ask(call(0), call(1)))).toEqual(['a:0'])
  expect(members(d.end('a', 3, before))).toEqual(['a:1'])
})

test('a call that is delivered twice is made once; a newer attempt takes the place of one that waits', () => {
  const d = start()
  d.ask(call(0), call(0), call(1), call(0, { attempt: 1 }), call(0))
  expect(d.state.waiting).toBe(2)
  const [batch] = d.offer('a', 4)
  expect(batch!.calls.map(ask => [ask.trajectory, ask.attempt])).toEqual([
    ['g/0', 1],
    ['g/1', 0],
  ])
})

test('a request for a call that is under way, repeated since its answer takes long, is ignored', () => {
  const d = start()
  d.offer('a', 2)
  d.ask(call(0))
  expect(d.ask(call(0))).toEqual([])
  expect(d.state.waiting).toBe(0)
  d.end('a', 2, call(0))
  expect(d.state.calls.size).toBe(0)
})

test('a request that is repeated while its call ends does not run the call again; one much later does', () => {
  const d = start()
  const offer = () => d.offer('a', 2)
  offer()
  d.ask(call(0))
  d.end('a', 2, call(0))
  expect(d.ask(call(0))).toEqual([])
  expect(d.state.calls.size).toBe(0)
  for (let second = 0; second < 24; second++) d.pass(1000)
  offer()
  expect(d.ask(call(0))).toEqual([])
  for (let second = 0; second < 26; second++) d.pass(1000)
  offer()
  expect(members(d.ask(call(0)))).toEqual(['a:0'])
})

test('a newer attempt of a call that is under way is made too, since the answer to the older one will not count', () => {
  const d = start()
  d.offer('a', 2)
  d.ask(call(0))
  expect(members(d.ask(call(0, { attempt: 1 })))).toEqual(['a:0'])
  d.end('a', 2, call(0))
  expect(d.state.calls.size).toBe(1)
  d.end('a', 2, call(0, { attempt: 1 }))
  expect(d.state.calls.size).toBe(0)
})

test('a trajectory with many calls does not hold up one with a single call', () => {
  const d = start()
  d.ask(...Array.from({ length: 50 }, (_, index) => call(0, { call: index })), call(1))
  expect(members(d.offer('a', 2))).toEqual(['a:0', 'a:1'])
})

test('a trajectory that ended has its waiting calls dropped, whichever queue they stand in', () => {
  const d = start()
  d.offer('a', 1)
  d.ask(call(0), call(0, { call: 1 }), call(0, { call: 2, tool: 'search' }), call(1))
  d.pass(6000) // a is gone; its call stands before the others
  d.tell({ type: 'tool.cancel', trajectory: trajectoryId(groupId('g'), 0) })
  expect(d.state.waiting).toBe(1)
  expect(members(d.offer('b', 9, [], ['python', 'search']))).toEqual(['b:1'])
  expect(d.state.waitingBytes).toBe(0)
})

test('a call goes to an executor that has the tool; a tool that nobody has raises an alarm once', () => {
  const d = start()
  d.offer('a', 9, [], ['python'])
  expect(d.ask(call(0, { tool: 'search' }), call(1, { tool: 'search' }))).toEqual([])
  for (let second = 0; second < 60; second++) {
    d.offer('a', 9, [], ['python'])
    d.pass(1000)
  }
  expect(d.alarms).toEqual(["no executor offers the tool 'search', for which 2 calls wait"])
  expect(members(d.offer('b', 9, [], ['search']))).toEqual(['b:0', 'b:1'])
})

test('calls over the bounds of the queue are not taken and counted; they are taken when they are asked for again', () => {
  const d = start({ maxWaiting: 2 })
  d.ask(call(0), call(1), call(2))
  expect(d.state).toMatchObject({ waiting: 2, refused: 1 })
  d.offer('a', 2)
  expect(d.state.waiting).toBe(0)
  d.ask(call(2, { attempt: 1 }))
  expect(members(d.end('a', 2, call(0)))).toEqual(['a:2'])
  const small = start({ maxWaitingBytes: 1000 })
  small.ask(call(0, { arguments: { code: 'x'.repeat(900) } }), call(1, { arguments: { code: 'x'.repeat(900) } }))
  expect(small.state).toMatchObject({ waiting: 1, refused: 1 })
})

/** What may happen to three executors of 1 to 4 slots, and to what they and the dispatcher say. */
type Event =
  | { readonly kind: 'ask'; readonly member: number; readonly calls: number }
  | { readonly kind: 'work'; readonly executor: number }
  | { readonly kind: 'silence' | 'die' | 'leave'; readonly executor: number }
  | { readonly kind: 'lose' }
  | { readonly kind: 'pass'; readonly ms: number }

const executors = [1, 2, 4]
const anExecutor = fc.nat({ max: executors.length - 1 })
const events: fc.Arbitrary<readonly Event[]> = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant('ask' as const),
        member: fc.nat(20),
        calls: fc.integer({ min: 1, max: 4 }),
      }),
    },
    { weight: 8, arbitrary: fc.record({ kind: fc.constant('work' as const), executor: anExecutor }) },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constantFrom('silence' as const, 'die' as const, 'leave' as const),
        executor: anExecutor,
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('lose' as const) }) },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.constantFrom(250, 1000, 3000) }) },
  ),
  { maxLength: 120 },
)

test('whatever executors and messages do, no call is lost and nobody holds more than it offered', () =>
  fc.assert(
    fc.property(events, happenings => {
      const d = start()
      /** By start: what it holds, and whether it still lives and speaks. */
      let starts = 0
      const spawn = (slots: number) => ({
        name: `x${starts++}`,
        slots,
        held: new Map<string, ExecuteTool>(),
        speaks: true,
      })
      const crew = executors.map(spawn)
      const departed: typeof crew = []
      const asked = new Map<string, ExecuteTool>()
      const answered = new Set<string>()
      let losing = false

      function deliver(assigned: readonly AssignTools[]): void {
        for (const { executor, calls } of assigned) {
          expect(calls.length).toBeLessThanOrEqual(64)
          const target = crew.find(x => x.name === executor)
          if (losing || target === undefined) {
            losing = false
            continue
          }
          for (const ask of calls) target.held.set(toolKey(ask), ask)
          expect(target.held.size).toBeLessThanOrEqual(target.slots)
        }
      }
      const speak = (x: (typeof crew)[number]) => {
        if (x.speaks) deliver(d.offer(x.name, x.slots, [...x.held.keys()]))
      }
      function work(x: (typeof crew)[number]): void {
        const [first] = x.held
        if (first === undefined) return
        x.held.delete(first[0])
        answered.add(first[0]) // the fact; the coordinator takes the first
        if (x.speaks) deliver(d.end(x.name, x.slots, first[1]))
      }
      function pass(ms: number): void {
        for (let at = 0; at < ms; at += 250) {
          if (at % 1000 === 0) for (const x of crew) speak(x)
          deliver(d.pass(250))
        }
      }

      for (const x of crew) speak(x)
      for (const event of happenings) {
        const x = 'executor' in event ? crew[event.executor]! : undefined
        switch (event.kind) {
          case 'ask':
            for (let index = 0; index < event.calls; index++) {
              const ask = call(event.member, { call: asked.size })
              asked.set(toolKey(ask), ask)
              deliver(d.ask(ask))
            }
            break
          case 'work':
            work(x!)
            break
          case 'silence':
            x!.speaks = !x!.speaks
            break
          case 'die':
            crew[event.executor] = spawn(x!.slots)
            break
          case 'leave':
            departed.push({ ...x!, slots: 0 })
            crew[event.executor] = spawn(x!.slots)
            deliver(d.offer(x!.name, 0, []))
            break
          case 'lose':
            losing = true
            break
          case 'pass':
            pass(event.ms)
        }
        for (const executor of d.state.executors.values()) {
          if (executor.slots > 0) expect(executor.leases.size).toBeLessThanOrEqual(executor.slots)
        }
      }
      // Then all is well for a while: whatever happened, everything is answered.
      losing = false
      for (const x of crew) x.speaks = true
      for (let second = 0; second < 30 || d.state.calls.size > 0; second++) {
        if (second > 2000) throw new Error(`${d.state.calls.size} calls are left`)
        pass(1000)
        for (const x of crew) while (x.held.size > 0) work(x)
      }
      expect([...asked.keys()].filter(key => !answered.has(key))).toEqual([])
      expect(d.state).toMatchObject({ waiting: 0, waitingBytes: 0 })
      expect(d.state.queues.size).toBe(0)
    }),
    { numRuns: 300 },
  ))
