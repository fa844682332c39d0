/** The supervision tree of a run: restarts of one child, escalation by one level, its end, its size, its trace in the log. */
import { spawn } from 'node:child_process'
import { processActor } from '../../../actors/run/processActor'
import { startInference } from '../../../actors/run/roles/inference'
import { openRunScope } from '../../../actors/run/roles/scope'
import type { RunOptions } from '../../../actors/run/run'
import { customEngine } from '../../../backends/engines/custom'
import type { Engine } from '../../../backends/engines/engine'
import { simulatedEngine } from '../../../backends/engines/simulated/simulated'
import { recipeSchema } from '../../../config'
import { h100 } from '../../../kernels/simulator/loads'
import type { ActorStatus } from '../../../messages/commands'
import type { Fact } from '../../../messages/facts'
import { type EngineId, engineId, runId } from '../../../messages/ids'
import type { Message } from '../../../messages/topics'
import { createActorSystem } from '../../../runtime/actor/system'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { systemEffects } from '../../../runtime/effects'
import { TroupeError } from '../../../runtime/errors'
import { createLog } from '../../../runtime/log'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'
import { until } from '../../support/until'

const log = createLog('test', { level: process.env.TROUPE_LOG ?? 'silent' })
const cleanups: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

const sizes = { kvTokens: 4096, blockTokens: 16, maxSequences: 2, contextTokens: 64, vocabulary: 10 }

/** An engine whose life is that of a process. */
function processEngine(id: EngineId, pids: Map<string, number[]>): Engine {
  const child = spawn('sleep', ['1000'], { stdio: 'ignore' })
  pids.set(id, [...(pids.get(id) ?? []), child.pid!])
  const lost = new Promise<Error>(resolve =>
    child.once('exit', (_, signal) => resolve(new TroupeError('engine.lost', lostBy(`${signal}`)))),
  )
  const answer = async () => ({ tokens: [1], logprobs: [0], text: '', finish: 'stop' as const })
  const engine = customEngine({ id, model: 'm', ...sizes, generate: answer as never })
  const close = async () => {
    child.kill('SIGKILL')
    await lost
  }
  return { ...engine, lost, close }
}
const lostBy = (signal: string) =>
  ({ boundary: 'engine', retriable: true, message: `the process was ended by ${signal}` }) as const

/** The inference part of a run with `count` engines. */
async function inferenceOf(count: number, startEngine: (id: EngineId) => Promise<Engine>) {
  const recipe = { name: 'r', model: { from: 'directory', path: '/m' }, engine: { kind: 'simulated', count } }
  const { value: config } = resolveConfig(recipeSchema, {
    ...{ what: 'recipe r', recipe: { ...recipe, engine: { ...recipe.engine, modelFile: 'm.json' } }, overrides: [] },
  })
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const common = { run: runId('r'), bus, blobs: memoryBlobs(), fx: systemEffects, log, role: 'inference' }
  const options = { ...common, config, startEngine } as unknown as RunOptions
  const { scope, root, journal, failed } = await openRunScope(options)
  let closing: Promise<void> | undefined
  const close = () => (closing ??= scope.close())
  cleanups.push(close)
  root.status.start(journal)
  const failure = { error: undefined as Error | undefined }
  failed.catch(error => {
    failure.error = error
  })
  await startInference(scope, { model: { directory: '/m', template: undefined }, name: 'e' })
  /** Messages of a topic, each read once however often a test looks. */
  const readOn = (topic: 'runs' | 'telemetry') => {
    const all: Message[] = []
    return async (): Promise<readonly Message[]> => {
      for (const { message } of await journal.read(topic, 0, all.length, 100_000)) all.push(message)
      return all
    }
  }
  const [runs, telemetry] = [readOn('runs'), readOn('telemetry')]
  const facts = async (type: Fact['type']) => (await runs()).filter(message => message.type === type) as Fact[]
  const states = async () => {
    const latest = new Map<string, ActorStatus>()
    for (const message of await telemetry()) {
      if (message.type !== 'actor.status') continue
      latest.delete(message.actor) // in the order of the latest changes
      latest.set(message.actor, message)
    }
    return latest
  }
  return { close, failure, facts, states }
}

test('a child whose process is killed is started again alone, and its siblings are not disturbed', async () => {
  const pids = new Map<string, number[]>()
  const { facts, states, failure } = await inferenceOf(3, async id => processEngine(id, pids))
  await until(async () => (await facts('engine.joined')).length === 3)
  process.kill(pids.get('e-1')![0]!, 'SIGKILL')
  await until(async () => (await facts('engine.joined')).length === 4)
  expect(await facts('engine.left')).toMatchObject([{ engine: 'e-1', reason: expect.stringContaining('SIGKILL') }])
  expect([...pids].map(([id, all]) => [id, all.length])).toEqual([
    ['e-0', 1],
    ['e-1', 2],
    ['e-2', 1],
  ])
  for (const id of ['e-0', 'e-2']) expect(() => process.kill(pids.get(id)![0]!, 0)).not.toThrow()
  await until(async () => (await states()).get('root/inference/e-1')?.state === 'up')
  const all = await states()
  expect(all.get('root/inference/e-1')).toMatchObject({ restarts: 1, reason: expect.stringContaining('SIGKILL') })
  expect(all.get('root/inference/e-0')).toMatchObject({ kind: 'process', state: 'up', restarts: 0 })
  expect(failure.error).toBeUndefined()
})

test('too many restarts escalate one level: the child rests, others take the turns, and the run goes on', async () => {
  let starts = 0
  const pids = new Map<string, number[]>()
  const { states, failure } = await inferenceOf(2, async id => {
    const engine = processEngine(id, pids)
    if (id === 'e-0') return engine
    starts++
    await engine.close()
    return engine
  })
  await until(async () => (await states()).get('root/inference/e-1')?.state === 'resting', 20_000)
  expect(starts).toBe(6)
  expect((await states()).get('root/inference/e-1')).toMatchObject({
    reason: expect.stringMatching(/^e-1 failed 6 times within 60000 ms/),
    restarts: 5,
  })
  expect((await states()).get('root/inference/e-0')).toMatchObject({ state: 'up', restarts: 0 })
  expect(failure.error).toBeUndefined()
}, 40_000)

test('the run ends when its last engine gives up, with the reason', async () => {
  const { failure } = await inferenceOf(1, async id => {
    const engine = processEngine(id, new Map())
    await engine.close()
    return engine
  })
  await until(async () => failure.error !== undefined, 20_000)
  expect(failure.error).toMatchObject({
    code: 'process.restarts_exceeded',
    message: expect.stringContaining('SIGKILL'),
  })
}, 40_000)

test('the third start in a row that fails is the last one of a child without siblings; one with siblings rests', async () => {
  const starts = { alone: 0, 'e-1': 0 }
  const late = new TroupeError('process.start_timeout', {
    ...{ boundary: 'process', retriable: true, message: 'did not start within 180000 ms' },
  })
  const alone = await inferenceOf(1, async () => {
    starts.alone++
    throw late
  })
  await until(async () => alone.failure.error !== undefined, 20_000)
  expect(starts.alone).toBe(3)
  expect(alone.failure.error).toMatchObject({
    code: 'process.failed_repeatedly',
    message: 'the start of e-0 failed 3 times in a row; last: did not start within 180000 ms',
  })
  const two = await inferenceOf(2, async id => {
    if (id === 'e-0') return processEngine(id, new Map())
    starts['e-1']++
    throw late
  })
  await until(async () => (await two.states()).get('root/inference/e-1')?.state === 'resting', 20_000)
  expect([starts['e-1'], two.failure.error]).toEqual([3, undefined])
}, 60_000)

test.each([
  ['fail', [0, 1, 2], 3],
  ['fail, fail, then one succeeds, and the same again', [0, 1, 3, 4, 6, 7, 8], 9],
] as const)('starts an hour apart that %s are counted by their row, not by their time', async (_, failing, starts) => {
  const clock = { hours: 0 }
  const given: Error[] = []
  const actor = processActor({
    name: 'trainer',
    // Nothing counts against the limit of restarts in a minute, as if each failure came an hour after the one before.
    restart: { withinMs: 0, backoffMs: 1 },
    start: async () => {
      const start = clock.hours++
      if ((failing as readonly number[]).includes(start)) throw new Error(`hour ${start}`)
      return { lost: Promise.resolve(new Error('died')), close: async () => {} }
    },
  })
  const system = createActorSystem({ name: 'hours', log, onDeadLetter: () => {} })
  cleanups.push(() => system.stop())
  actor.current().catch(() => {})
  system.spawn(actor.make(error => given.push(error)))
  await until(async () => given.length > 0)
  expect([clock.hours, given[0]!.message]).toEqual([
    starts,
    `the start of trainer failed 3 times in a row; last: hour ${starts - 1}`,
  ])
})

test('a first start that can never succeed ends the run at once, though other engines work', async () => {
  const pids = new Map<string, number[]>()
  const wrong = new TroupeError('engine.unfit', { boundary: 'engine', retriable: false, message: 'another model' })
  const { failure } = await inferenceOf(2, async id => {
    if (id === 'e-0') return processEngine(id, pids)
    throw wrong
  })
  await until(async () => failure.error !== undefined)
  expect(failure.error).toBe(wrong)
})

test('a shutdown goes from the leaves up: processes end before their supervisor, which ends before the root', async () => {
  const pids = new Map<string, number[]>()
  const { close, facts, states } = await inferenceOf(2, async id => processEngine(id, pids))
  await until(async () => (await facts('engine.joined')).length === 2)
  await close()
  const ended = [...(await states()).values()].filter(({ state }) => state === 'stopped').map(({ actor }) => actor)
  const at = (actor: string) => ended.indexOf(actor)
  for (const leaf of ['e-0', 'e-1']) {
    expect(at(`root/inference/${leaf}/inference.${leaf}`)).toBeLessThan(at(`root/inference/${leaf}`))
    expect(at(`root/inference/${leaf}`)).toBeLessThan(at('root/inference'))
    expect(() => process.kill(pids.get(leaf)![0]!, 0)).toThrow('ESRCH')
  }
  expect(at('root/inference')).toBeLessThan(at('root'))
  expect(await facts('engine.left')).toHaveLength(2)
})

test('a child that does not end is left behind at its deadline, and the rest is ended', async () => {
  const hang = (id: EngineId): Engine => {
    const engine = processEngine(id, new Map())
    cleanups.push(engine.close)
    return { ...engine, close: () => (id === 'e-0' ? new Promise(() => {}) : engine.close()) }
  }
  const { close, facts, states } = await inferenceOf(2, async id => hang(id))
  await until(async () => (await facts('engine.joined')).length === 2)
  const before = performance.now()
  await close()
  expect(performance.now() - before).toBeLessThan(30_000)
  expect((await states()).get('root')).toMatchObject({ state: 'stopped' })
}, 60_000)

test('1,000 inference actors on simulated engines start and stop', async () => {
  const everyMs = 250 // a check goes through 1,000 engines' facts
  const start = async (id: EngineId) =>
    simulatedEngine({
      ...{ id: engineId(id), model: h100, vocabulary: 320, contextTokens: 1024 },
      decode: async () => '',
    })
  const { close, facts, states, failure } = await inferenceOf(1000, start)
  await until(async () => (await facts('engine.joined')).length === 1000, 90_000, everyMs)
  await until(
    async () => {
      const up = [...(await states()).values()].filter(({ kind, state }) => kind === 'process' && state === 'up')
      return up.length === 1000
    },
    30_000,
    everyMs,
  )
  await close()
  expect(await facts('engine.left')).toHaveLength(1000)
  expect([...(await states()).values()].every(({ state }) => state === 'stopped')).toBe(true)
  expect(failure.error).toBeUndefined()
}, 180_000)
