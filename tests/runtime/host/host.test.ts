import type { Message } from '../../../messages'
import type { Fact, StageChanged } from '../../../messages/facts'
import { epoch, groupId, runId, trajectoryId } from '../../../messages/ids'
import { createActorSystem } from '../../../runtime/actor/system'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import { type Behaviour, nothing } from '../../../runtime/host/behaviour'
import { type Host, type HostOptions, startHost } from '../../../runtime/host/host'
import type { Journal } from '../../../runtime/journal/journal'
import { openJournal } from '../../../runtime/journal/openJournal'
import { createLog } from '../../../runtime/log'
import { until } from '../../support/until'

const stage = (name: string, step = 0): StageChanged => ({
  type: 'stage.changed',
  at: 0,
  stage: name,
  step,
  reason: '',
})
const log = createLog('test', { level: 'silent' })

/** Counts stages; answers `ask` with an `answer` through a request. */
interface Seen {
  readonly stages: readonly string[]
}
type Request = { readonly name: string }

function recorder(crashOn?: string): Behaviour<Seen, never, Request> {
  return {
    name: 'recorder',
    initial: () => ({ stages: [] }),
    evolve(state, fact) {
      if (fact.type !== 'stage.changed') return state
      if (crashOn !== undefined && fact.stage.startsWith(crashOn)) throw new Error('cannot live with it')
      return { stages: [...state.stages, fact.stage] }
    },
    decide: (_state, input) =>
      input.type === 'stage.changed' && input.stage.startsWith('ask')
        ? { ...nothing, requests: [{ name: input.stage }] }
        : nothing,
    pending: state => ({
      ...nothing,
      requests: state.stages
        .filter(s => s.startsWith('ask') && !state.stages.includes(`answer ${s}`))
        .map(name => ({ name })),
    }),
  }
}

interface Rig {
  readonly journal: Journal
  host(
    behaviour: Behaviour<Seen, never, Request>,
    change?: Partial<HostOptions<Seen, never & Message, Request>>,
  ): Promise<Host>
  learnerFacts(): Promise<Fact[]>
  bus: ReturnType<typeof openMemoryBus>
  failures: Error[]
}

const cleanups: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function rig(): Promise<Rig> {
  const bus = openMemoryBus()
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  const system = createActorSystem({ name: 'test', log, onDeadLetter: () => {} })
  cleanups.push(
    () => bus.close(),
    () => system.stop(),
  )
  const failures: Error[] = []
  return {
    bus,
    journal,
    failures,
    async host(behaviour, change = {}) {
      const host = await startHost({
        name: `${behaviour.name}-${cleanups.length}`,
        behaviour,
        journal,
        system,
        fx: systemEffects,
        log,
        feeds: [{ topic: 'learner', from: 'oldest' }],
        keyOf: r => r.name,
        onFailed: error => failures.push(error),
        ...change,
      })
      cleanups.push(() => host.close())
      return host
    },
    learnerFacts: async () => (await journal.read('learner', 0, 0, 1000)).map(e => e.message as Fact),
  }
}

const answering = (name: string) => ({ facts: [stage(`answer ${name}`)], commands: [] })

test('what was in the log before is folded and not decided on; what has no answer is asked again', async () => {
  const { journal, host, learnerFacts } = await rig()
  await journal.append([stage('ask 1'), stage('answer ask 1'), stage('ask 2')])
  const asked: string[] = []
  const started = await host(recorder(), {
    perform: async ({ name }) => {
      asked.push(name)
      return answering(name)
    },
  })
  await started.live
  await until(async () => (await learnerFacts()).length === 4)
  expect(asked).toEqual(['ask 2'])
  await journal.append([stage('ask 3')])
  await until(async () => (await learnerFacts()).length === 6)
  expect(asked).toEqual(['ask 2', 'ask 3'])
})

test('a request that fails restarts the actor from the log and is asked again; its answer counts once', async () => {
  const { journal, host, learnerFacts, failures } = await rig()
  let tries = 0
  const started = await host(recorder(), {
    perform: async ({ name }) => {
      if (++tries < 3) throw new Error('the port is down')
      return answering(name)
    },
  })
  await started.live
  await journal.append([stage('ask 1')])
  await until(async () => (await learnerFacts()).length === 2)
  expect(tries).toBe(3)
  expect(failures).toEqual([])
})

test('a record that nobody can read goes to the dead letters with its error and its origin, and the rest goes on', async () => {
  const { bus, journal, host, learnerFacts } = await rig()
  const seen: string[] = []
  const started = await host(recorder(), {
    perform: async ({ name }) => {
      seen.push(name)
      return undefined
    },
  })
  await started.live
  const topic = 'troupe.r.learner'
  await bus.append([
    { topic, key: 'k', headers: {}, value: Buffer.from('not ours') },
    { topic, key: 'k', headers: { type: 'stage.changed', version: '99' }, value: Buffer.from([0xc0]) },
  ])
  await journal.append([stage('ask after')])
  await until(async () => seen.length === 1)
  const dead = await bus.read('troupe.r.dead-letters', 0, 0)
  expect(dead.map(d => d.headers.origin)).toEqual([`${topic}:0:0`, `${topic}:0:1`])
  expect(dead.every(d => (d.headers.error ?? '').length > 0)).toBe(true)
  expect(Buffer.from(dead[0]!.value).toString()).toBe('not ours')
  expect((await learnerFacts()).map(f => f.type)).toEqual(['stage.changed'])
})

test('a message that crashes its actor three times goes to the dead letters, and the actor goes on', async () => {
  const { bus, journal, host, failures } = await rig()
  const seen: string[] = []
  const started = await host(recorder('poison'), {
    perform: async ({ name }) => {
      seen.push(name)
      return undefined
    },
  })
  await started.live
  await journal.append([stage('ask before'), stage('poison'), stage('ask after')])
  await until(async () => seen.includes('ask after'))
  const dead = await bus.read('troupe.r.dead-letters', 0, 0)
  expect(dead).toHaveLength(1)
  expect(dead[0]!.headers).toMatchObject({ error: 'cannot live with it', origin: 'troupe.r.learner:0:1' })
  expect(failures).toEqual([])
})

test('two messages of one batch that crash their actor cost nobody what comes behind them', async () => {
  const { bus, journal, host, failures } = await rig()
  const seen: string[] = []
  const perform = async ({ name }: Request) => void seen.push(name) as undefined
  const started = await host(recorder('poison'), { perform, restart: { backoffMs: 1 } })
  await started.live
  await journal.append([stage('poison 1'), stage('poison 2'), stage('ask after')])
  await until(() => seen.includes('ask after'))
  expect(await bus.read('troupe.r.dead-letters', 0, 0)).toHaveLength(2)
  expect(failures).toEqual([])
})

test('what came before all partitions were there is taken up whole, though one of it crashes the actor', async () => {
  const { journal, host, failures } = await rig()
  const seen: string[] = []
  let arrive = () => {}
  const there = new Promise<void>(resolve => {
    arrive = resolve
  })
  let assigning = 0
  const slow: Journal = {
    ...journal,
    async offsets(topic, partition) {
      if (topic === 'runs' && assigning++ === 0) await there
      return journal.offsets(topic, partition)
    },
  }
  const held = jest.fn()
  const starting = host(recorder('poison'), {
    journal: {
      ...slow,
      // The batch was handed over when the next one could be.
      follow: (options, handler) => slow.follow(options, entries => handler(entries).then(held)),
    },
    feeds: [
      { topic: 'learner', from: 'oldest' },
      { topic: 'runs', from: 'oldest' },
    ],
    restart: { backoffMs: 1 },
    perform: async ({ name }) => void seen.push(name) as undefined,
  })
  await until(() => assigning > 0)
  await journal.append([stage('poison'), stage('ask after')])
  await until(() => held.mock.calls.length > 0)
  await new Promise(resolve => setImmediate(resolve))
  arrive()
  await (await starting).live
  await until(() => seen.includes('ask after'))
  expect(failures).toEqual([])
})

test('facts behind more foreign records than are read at once are folded, and what is asked there is answered', async () => {
  const { bus, journal, host } = await rig()
  const foreign = { topic: 'troupe.r.learner', key: 'k', headers: {}, timestamp: 0, value: Buffer.from('not ours') }
  await bus.append(Array.from({ length: 2500 }, () => foreign))
  await journal.append([stage('ask behind')])
  const seen: string[] = []
  await (await host(recorder(), { perform: async ({ name }) => void seen.push(name) as undefined })).live
  await until(() => seen.includes('ask behind'))
})

test('who waits for a host to be live is told when it never will be', async () => {
  const { journal, host, failures } = await rig()
  const broken: Journal = {
    ...journal,
    async *readTo() {
      yield []
      throw new Error('no leader')
    },
  }
  await journal.append([stage('of before')])
  const started = await host(recorder(), { journal: broken, restart: { maxRestarts: 2, backoffMs: 1 } })
  await expect(started.live).rejects.toThrow('no leader')
  expect(failures).toHaveLength(1)
  let answer = () => {}
  const answered = new Promise<void>(resolve => {
    answer = resolve
  })
  const slow: Journal = {
    ...journal,
    async *readTo(...asked) {
      await answered
      yield* journal.readTo(...asked)
    },
  }
  const waiting = await host(recorder(), { journal: slow })
  const closed = expect(waiting.live).rejects.toMatchObject({ code: 'actor.closed' })
  const closing = waiting.close()
  await closed
  answer()
  await closing
})

test("an offset that cannot be committed, its partition being another process's, makes the owner ask nobody again", async () => {
  const { journal, host, failures } = await rig()
  let commits = 0
  const moved: Journal = {
    ...journal,
    async follow(options, handler) {
      const following = await journal.follow(options, handler)
      return {
        ...following,
        async commit() {
          commits++
          throw new TroupeError('bus.not_owned', { boundary: 'bus', retriable: true, message: 'it is of another' })
        },
      }
    },
  }
  let asked = 0
  const behaviour = { ...recorder(), pending: () => ({ ...nothing, requests: [{ name: String(asked++) }] }) }
  const options = { feeds: [{ topic: 'trajectories', from: 'committed' }], tickMs: 5, oldestOpen: () => 0 } as const
  await (await host(behaviour, { ...options, journal: moved, owner: 'a' })).live
  await until(() => commits > 3)
  expect(asked).toBe(1)
  expect(failures).toEqual([])
})

test('a message over the record limit goes through the blob store and comes back the same', async () => {
  const { bus, journal } = await rig()
  const large = stage('x'.repeat(1_500_000))
  await journal.append([large])
  const [record] = await bus.read('troupe.r.learner', 0, 0)
  expect(record!.value.byteLength).toBeLessThan(2000)
  expect(record!.headers.blob).toMatch(/^[0-9a-f]{64}$/)
  expect((await journal.read('learner', 0, 0))[0]!.message).toEqual(large)
})

test('an actor that fails again and again is given up, and says so', async () => {
  const { journal, host, failures } = await rig()
  const started = await host(recorder(), {
    restart: { maxRestarts: 3 },
    perform: async () => {
      throw new Error('for good')
    },
  })
  await started.live
  await journal.append([stage('ask 1')])
  await until(async () => failures.length > 0)
  expect(failures[0]!.message).toContain('for good')
})

test('a request that can never succeed is given up at once', async () => {
  const { journal, host, failures } = await rig()
  let tries = 0
  const started = await host(recorder(), {
    perform: async () => {
      tries++
      throw new TroupeError('trainer.bad', { boundary: 'trainer', retriable: false, message: 'never' })
    },
  })
  await started.live
  await journal.append([stage('ask 1')])
  await until(() => failures.length > 0)
  expect(failures[0]).toMatchObject({ code: 'trainer.bad' })
  expect(tries).toBe(1)
})

/** Counts decisions of the current epoch, as the coordinator does. */
const counting: Behaviour<{ readonly epoch: number; readonly finished: number }> = {
  name: 'counting',
  initial: () => ({ epoch: -1, finished: 0 }),
  evolve(state, fact, origin) {
    if (fact.type === 'partition.claimed') return { ...state, epoch: origin.offset }
    if (fact.type === 'rollout.finished' && fact.epoch === state.epoch)
      return { ...state, finished: state.finished + 1 }
    return state
  },
  decide: () => nothing,
  pending: () => nothing,
}

test('an owner that refolds from the middle of a partition knows the epoch of what it finds there', async () => {
  const { journal, host } = await rig()
  const trajectory = trajectoryId(groupId('g'), 0)
  const counts = { turns: 1, sampledTokens: 1, toolCalls: 0, toolErrors: 0, answerTags: 1 }
  const finished = (at: number): Fact => ({
    type: 'rollout.finished',
    at: 0,
    trajectory,
    epoch: epoch(at),
    outcome: 'answered',
    reason: '',
    ...counts,
  })
  let last = { epoch: -1, finished: -1 }
  const behaviour = {
    ...counting,
    pending: (state: typeof last) => {
      last = state
      return nothing
    },
  }
  // Until offset 7 nothing is open any more: that is where the next owner begins.
  const options = { feeds: [{ topic: 'trajectories', from: 'committed' }], group: 'owners', tickMs: 10 } as const
  const first = await host(behaviour as never, { ...options, owner: 'a', oldestOpen: () => 7 })
  await first.live
  expect(last).toEqual({ epoch: 0, finished: 0 })
  await journal.append([...Array.from({ length: 9 }, () => finished(0)), finished(-5)])
  await until(async () => (await journal.committed('owners', 'trajectories', 0)) === 7)
  await first.close()
  const second = await host(behaviour as never, { ...options, owner: 'b', oldestOpen: () => 7 })
  await second.live
  // Offsets 7, 8 and 9 count, the stray at 10 does not; then comes the new claim.
  expect(last).toEqual({ epoch: 11, finished: 3 })
})

/** Decides by its state alone: answers every `ask` with a request, and says `over` itself when three are answered. */
function byState(): Behaviour<Seen, never, Request> {
  const { initial, evolve, pending } = recorder()
  return {
    name: 'by-state',
    initial,
    evolve,
    pending(state, fx) {
      const isOver = state.stages.filter(s => s.startsWith('answer')).length >= 3 && !state.stages.includes('over')
      return { ...pending(state, fx), facts: isOver ? [stage('over')] : [] }
    },
  }
}

test.each([0, 30])(
  'a behaviour that decides by its state says and asks nothing twice, with %d ms between its batches',
  async lingerMs => {
    const { journal, host, learnerFacts } = await rig()
    let performed = 0
    const started = await host(byState(), {
      lingerMs,
      tickMs: 1,
      perform: async ({ name }) => {
        performed++
        return answering(name)
      },
    })
    await started.live
    const said = async (name: string) =>
      (await learnerFacts()).filter(f => f.type === 'stage.changed' && f.stage === name)
    await journal.append([stage('ask 1'), stage('noise'), stage('ask 2'), stage('noise')])
    let noise = 0
    await until(async () => {
      // Facts that move the state come all the time, also between what is said and its fold.
      await journal.append([stage(`noise ${noise++}`), ...(noise === 10 ? [stage('ask 3')] : [])])
      return (await said('over')).length > 0 && noise > 10
    })
    for (let k = 0; k < 20; k++) await journal.append([stage('late noise')])
    const { next } = await journal.offsets('learner', 0)
    await journal.append([stage('ask 4')])
    await until(async () => (await said('answer ask 4')).length > 0)
    expect(next).toBeGreaterThan(30)
    expect(performed).toBe(4)
    expect(await said('over')).toHaveLength(1)
    for (const k of [1, 2, 3, 4]) expect(await said(`answer ask ${k}`)).toHaveLength(1)
  },
)

test('who decides by its state alone reads the log to its end after a failure, before it says anything anew', async () => {
  const { journal, host } = await rig()
  const asked: string[] = []
  const counter: Behaviour<Seen, never, Request> = {
    ...{ name: 'counter', initial: () => ({ stages: [] }) },
    evolve: (state, fact) => (fact.type === 'stage.changed' ? { stages: [...state.stages, fact.stage] } : state),
    pending: ({ stages }) => ({ ...nothing, requests: stages.length === 0 ? [] : [{ name: stages.join(' ') }] }),
  }
  await host(counter, {
    lingerMs: 400, // longer than a restart takes: what comes next is in the log and was not handed over
    perform: async ({ name }) => {
      asked.push(name)
      if (asked.length > 1) return undefined
      await journal.append([stage('part')])
      throw new TroupeError('bus.unreachable', { boundary: 'bus', retriable: true, message: 'the rest is not there' })
    },
  }).then(({ live }) => live)
  await journal.append([stage('first')])
  await until(() => asked.length > 1)
  expect(asked.slice(0, 2)).toEqual(['first', 'first part'])
})
