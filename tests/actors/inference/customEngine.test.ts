/** Engines of the caller's own in a run: how many turns they get, how they leave, and what becomes of one that fails. */
import { setTimeout as sleep } from 'node:timers/promises'
import { joinEngine, scheduler } from '../../../actors'
import { inferencePort } from '../../../actors/inference/inferencePort'
import { startInference } from '../../../actors/run/roles/inference'
import { openScope } from '../../../actors/run/roles/scope'
import type { RunOptions } from '../../../actors/run/run'
import { type CustomEngineOptions, customEngine } from '../../../backends/engines/custom'
import { type Engine, GenerationLost } from '../../../backends/engines/engine'
import { recipeSchema } from '../../../config'
import type { GenerateTurn } from '../../../messages/commands'
import type { Fact } from '../../../messages/facts'
import { engineId, epoch, groupId, policyVersion, trajectoryId } from '../../../messages/ids'
import { systemEffects } from '../../../runtime/effects'
import { type Embedded, openTroupe } from '../../../runtime/embed'
import { TroupeError } from '../../../runtime/errors'
import type { Feed } from '../../../runtime/journal/journal'
import { createLog } from '../../../runtime/log'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'
import { until } from '../../support/until'

const log = createLog('test', { level: 'silent' })
const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function open(): Promise<Embedded> {
  const troupe = await openTroupe({ bus: 'memory:', run: 'r', log })
  cleanups.push(() => troupe.close())
  return troupe
}

const sizes = { kvTokens: 4096, blockTokens: 16, maxSequences: 2, contextTokens: 64, vocabulary: 10 }
const echo = (id: string, generate: CustomEngineOptions['generate']) =>
  customEngine({ id: engineId(id), model: 'echo', ...sizes, generate })
const answer = (tokens: Int32Array) => ({
  tokens,
  logprobs: new Float32Array(tokens.length),
  text: tokens.join(' '),
  finish: 'stop' as const,
})
const turn = (order: number, change: Partial<GenerateTurn> = {}): GenerateTurn => ({
  ...{ type: 'turn.generate', trajectory: trajectoryId(groupId(`g${order}`), 0), turn: 0, attempt: 0, epoch: epoch(0) },
  ...{ engine: null, seed: 1, sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }, maxTokens: 2 },
  ...{ context: Int32Array.of(1, 2, 3), resumedTokens: 0, promptTokens: 3, boundTokens: 8, order },
  minVersion: policyVersion(0),
  ...change,
})

async function scheduled(troupe: Embedded): Promise<void> {
  const commands = (['turns', 'telemetry', 'trajectories'] as const).map(topic => ({ topic, from: 'latest' as const }))
  const feeds: readonly Feed[] = [{ topic: 'runs', from: 'oldest' }, ...commands]
  await (await troupe.host({ behaviour: scheduler('kv-headroom'), feeds })).live
}

async function facts(troupe: Embedded, type: Fact['type']): Promise<readonly Fact[]> {
  const topic = type.startsWith('turn') ? 'trajectories' : 'runs'
  return (await troupe.journal.read(topic, 0, 0, 1000)).map(e => e.message as Fact).filter(f => f.type === type)
}

test('no engine is given more turns at once than it takes, and every turn is answered once', async () => {
  const troupe = await open()
  await scheduled(troupe)
  const most = new Map<string, number>()
  for (const id of ['a', 'b']) {
    let running = 0
    const engine = echo(id, async ({ context }) => {
      most.set(id, Math.max(most.get(id) ?? 0, ++running))
      await sleep(20)
      running--
      return answer(context.slice(-2))
    })
    await joinEngine(troupe, engine, { version: 0 })
  }
  await troupe.journal.append(Array.from({ length: 12 }, (_, order) => turn(order)))
  await until(async () => (await facts(troupe, 'turn.completed')).length === 12)
  expect([...most.values()]).toEqual([2, 2])
  const names = (await facts(troupe, 'turn.completed')).map(f => (f as { trajectory?: string }).trajectory)
  expect(new Set(names).size).toBe(12)
})

test('an engine that leaves says so, and a turn that is asked again goes to another', async () => {
  const troupe = await open()
  await scheduled(troupe)
  const hanging = echo('a', (_request, signal) => sleep(60_000, answer(new Int32Array()), { signal }))
  const joined = await joinEngine(troupe, hanging, { version: 0 })
  await troupe.journal.append([turn(0)])
  await until(async () => (await hanging.status()).running === 1)
  await joined.leave('taken away')
  expect(await facts(troupe, 'engine.left')).toMatchObject([{ engine: 'a', reason: 'taken away' }])
  const interrupted = (await facts(troupe, 'turn.interrupted')) as readonly { reason: string }[]
  // The scheduler may have seen the engine leave before it saw the turn end, and says so too.
  expect(interrupted.filter(({ reason }) => reason !== 'engine-lost')).toMatchObject([
    { engine: 'a', reason: 'aborted' },
  ])
  await joinEngine(
    troupe,
    echo('b', async ({ context }) => answer(context.slice(-2))),
    { version: 0 },
  )
  await troupe.journal.append([turn(0, { attempt: 1 })])
  await until(async () => (await facts(troupe, 'turn.completed')).length === 1)
  expect(await facts(troupe, 'turn.completed')).toMatchObject([{ engine: 'b', attempt: 1 }])
})

describe('a generation that fails because its engine is lost', () => {
  const gone = new TroupeError('engine.lost', { boundary: 'engine', retriable: true, message: 'killed' })
  const failing = (error: Error, lost: Promise<Error>): Engine => ({
    ...echo('a', async () => {
      throw error
    }),
    lost,
  })
  const generate = (engine: Engine) =>
    inferencePort(engine, false, systemEffects)({ kind: 'generate', ask: turn(0) }, new AbortController().signal)

  test('is not reported: the turn would come back to the engine before the engine has left, and fail again', async () => {
    expect(await generate(failing(gone, Promise.resolve(gone)))).toBeUndefined()
    expect(await generate(failing(gone, sleep(300, gone)))).toBeUndefined()
  })

  test('is reported if it has tokens to continue from, or if the engine is still there', async () => {
    const partial = { tokens: Int32Array.of(7), logprobs: new Float32Array(1), segments: [] }
    const reported = { type: 'turn.interrupted', reason: 'engine-lost', error: 'killed' }
    const withTokens = await generate(failing(new GenerationLost(gone, partial), Promise.resolve(gone)))
    expect(withTokens!.facts).toMatchObject([{ ...reported, tokens: partial.tokens }])
    const alone = await generate(failing(gone, new Promise(() => {})))
    expect(alone!.facts).toMatchObject([reported])
  })

  test('is interrupted once, by the scheduler, however long the engine takes to leave', async () => {
    const troupe = await open()
    await scheduled(troupe)
    const joined = await joinEngine(troupe, failing(gone, Promise.resolve(gone)), { version: 0 })
    await troupe.journal.append([turn(0)])
    await sleep(300)
    expect(await facts(troupe, 'turn.interrupted')).toEqual([])
    await joined.leave('killed')
    await until(async () => (await facts(troupe, 'turn.interrupted')).length > 0)
    expect(await facts(troupe, 'turn.interrupted')).toMatchObject([{ attempt: 0, reason: 'engine-lost' }])
  })
})

test('a turn that is asked again because it takes long goes on under its newest attempt; one from another context ends it', async () => {
  const ends: (() => void)[] = []
  const slow = echo('a', async (_request, signal) => {
    await new Promise<void>((resolve, reject) => {
      ends.push(resolve)
      signal.addEventListener('abort', () => reject(signal.reason))
    })
    return answer(Int32Array.of(7, 8))
  })
  const port = inferencePort(slow, false, systemEffects)
  const generate = (change: Partial<GenerateTurn>) =>
    port({ kind: 'generate', ask: turn(0, change) }, new AbortController().signal)
  const attempts = [generate({}), generate({ attempt: 1 }), generate({ attempt: 2 })]
  await until(async () => ends.length > 0)
  ends[0]!()
  expect((await Promise.all(attempts)).map(answered => answered?.facts)).toMatchObject([
    ...[undefined, undefined],
    [{ type: 'turn.completed', attempt: 2, tokens: Int32Array.of(7, 8) }],
  ])
  expect(ends).toHaveLength(1)

  const before = generate({})
  await until(async () => ends.length === 2)
  const after = generate({ attempt: 1, context: Int32Array.of(1, 2, 3, 4) })
  expect(await before).toMatchObject({ facts: [{ type: 'turn.interrupted', reason: 'aborted', attempt: 0 }] })
  await until(async () => ends.length === 3)
  // One that never ends is waited for some attempts more, and then ended.
  const more = Array.from({ length: 11 }, (_, k) => generate({ attempt: 2 + k, context: Int32Array.of(1, 2, 3, 4) }))
  await until(async () => ends.length === 4)
  ends[3]!()
  expect(await after).toBeUndefined()
  expect(await more.at(-1)).toMatchObject({ facts: [{ type: 'turn.completed', attempt: 12 }] })
})

test('an engine around a function: contexts that do not fit and failures are told apart, an abort resolves', async () => {
  const request = { ...turn(0), requestId: 'q', priority: 0, keep: false }
  const failing = echo('a', async () => {
    throw new Error('out of luck')
  })
  await expect(failing.generate(request)).rejects.toThrow('out of luck')
  const tooLong = { ...request, context: new Int32Array(64) }
  await expect(failing.generate(tooLong)).rejects.toMatchObject({ code: 'engine.context_exceeded', retriable: false })
  for (const context of [new Int32Array(), Int32Array.of(1, sizes.vocabulary)]) {
    await expect(failing.generate({ ...request, context })).rejects.toMatchObject({ code: 'engine.bad_request' })
  }
  const slow = echo('b', (_request, signal) => sleep(60_000, answer(new Int32Array()), { signal }))
  const generation = slow.generate(request)
  expect(await slow.status()).toMatchObject({ running: 1, referencedTokens: 3, prefilledTokens: 3 })
  await expect(slow.generate(request)).rejects.toMatchObject({ code: 'engine.bad_request' }) // its id runs already
  await slow.abort('q')
  expect(await generation).toMatchObject({ finish: 'aborted', tokens: new Int32Array() })
  expect(await slow.status()).toMatchObject({ running: 0, referencedTokens: 0, generatedTokens: 0 })
  await slow.close()
  await expect(slow.generate(request)).rejects.toMatchObject({ code: 'engine.lost' })
})

test('what a function gives is held against what was asked: anything else is `engine.failed`, and says what', async () => {
  const request = { ...turn(0), requestId: 'q', priority: 0, keep: false }
  const sampling = { ...request.sampling, stopTokens: [7] }
  const good = answer(Int32Array.of(1, 7))
  const wrong: readonly (readonly [unknown, RegExp])[] = [
    [undefined, /undefined instead of an object/],
    [{ ...good, logprobs: new Float32Array(1) }, /2 tokens with 1 logprobs/],
    [{ ...good, logprobs: [-1, -1] }, /logprobs are of type Array/],
    [{ ...good, tokens: [1, 2] }, /tokens are of type Array/],
    [{ ...good, tokens: undefined }, /tokens are of type Undefined/],
    [answer(Int32Array.of(1, 2, 3)), /more than 2 tokens/],
    [answer(Int32Array.of(7, 1)), /continues after stop token 7/],
    [answer(Int32Array.of(1, 10)), /expected token ids from 0 to 9, found \[1,10\]/],
    [answer(Int32Array.of(-1)), /expected token ids from 0 to 9/],
    [{ ...good, logprobs: Float32Array.of(-1, Number.NaN) }, /invalid logprobs.*: \[-1,"NaN"\]/],
    [{ ...good, logprobs: Float32Array.of(-1, 0.5) }, /invalid logprobs/],
    [{ ...good, text: 7 }, /text is of type Number/],
    [{ ...good, finish: 'done' }, /ended with 'done'/],
  ]
  for (const [given, said] of wrong) {
    const engine = echo('a', async () => given as ReturnType<typeof answer>)
    const failed = { code: 'engine.failed', message: expect.stringMatching(said) }
    await expect(engine.generate({ ...request, sampling })).rejects.toMatchObject(failed)
    expect((await engine.status()).generatedTokens).toBe(0)
  }
  const engine = echo('a', async () => ({ ...good, finish: 'length' }))
  expect(await engine.generate({ ...request, sampling })).toMatchObject({ ...good, finish: 'stop' })
  // The context has room for one more.
  const long = { ...request, context: new Int32Array(63) }
  await expect(engine.generate(long)).rejects.toThrow(/more than 1 tokens/)
})

test('an engine that fails turn after turn leaves, rests, and joins again by itself', async () => {
  const troupe = await open()
  await scheduled(troupe)
  let broken = true
  const startEngine = async (id: string) =>
    echo(id, async ({ context }) => {
      if (broken) throw new Error('HTTP 500')
      return answer(context.slice(-2))
    })
  const recipe = { name: 'r', model: { from: 'directory', path: '/m' } }
  const { value: config } = resolveConfig(recipeSchema, { what: 'recipe r', recipe, overrides: [] })
  const options = { config, log, fx: troupe.fx, role: 'inference', startEngine } as unknown as RunOptions
  const failures: Error[] = []
  const scope = openScope(options, troupe, error => failures.push(error))
  cleanups.push(() => scope.close())
  await startInference(scope, { model: { directory: '/m' } as never })
  await troupe.journal.append([
    { type: 'weights.published', at: 0, version: policyVersion(0), step: 0, url: 'file:///m', digest: 'd', bytes: 1 },
  ])
  await until(async () => (await facts(troupe, 'weights.applied')).length === 1)
  await troupe.journal.append(Array.from({ length: 12 }, (_, order) => turn(order)))
  await until(async () => (await facts(troupe, 'engine.left')).length === 1)
  expect(await facts(troupe, 'engine.left')).toMatchObject([
    {
      engine: 'local-0',
      reason: expect.stringMatching(/^its last \d+ turns failed, the last with: HTTP 500$/),
      retryAfterMs: 5000,
    },
  ])
  broken = false
  await troupe.journal.append(Array.from({ length: 12 }, (_, order) => turn(order, { attempt: 1 })))
  // Attempts that were under way when the engine was sent away may be completed too.
  const again = (fact: Fact) => fact.type === 'turn.completed' && fact.attempt === 1
  await until(async () => (await facts(troupe, 'turn.completed')).filter(again).length === 12, 20_000)
  expect(await facts(troupe, 'engine.left')).toHaveLength(1)
  expect(await facts(troupe, 'engine.joined')).toHaveLength(2)
  expect(failures).toEqual([])
}, 40_000)

test('an engine of the caller that is sent away joins again by itself when it has rested, and not once it was closed', async () => {
  const troupe = await open()
  const left = (retryAfterMs?: number): Fact => ({
    ...{ type: 'engine.left', at: 0, engine: engineId('a'), reason: 'tired' },
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  })
  await troupe.journal.append([left()]) // of a life before
  const engine = echo('a', async ({ context }) => answer(context.slice(-2)))
  const joined = await joinEngine(troupe, engine, { version: 0 })
  const joins = async () => (await facts(troupe, 'engine.joined')).length
  await troupe.journal.append([left(50), left()])
  await until(async () => (await facts(troupe, 'weights.applied')).length === 2)
  expect(await facts(troupe, 'weights.applied')).toMatchObject([{ version: 0 }, { version: 0 }])
  expect(await joins()).toBe(2)
  await troupe.journal.append([{ type: 'turn.assign', engine: engineId('a'), ask: turn(0) }])
  await until(async () => (await facts(troupe, 'turn.completed')).length === 1)
  await troupe.journal.append([left(3_600_000)])
  await troupe.journal.append([{ type: 'turn.assign', engine: engineId('a'), ask: turn(1) }])
  await joined.leave('no more')
  expect(await joins()).toBe(2)
  await engine.close()
})

test("an engine that rests while its embedding is closed is nobody's fault", async () => {
  const troupe = await openTroupe({ bus: 'memory:', run: 'r', log })
  const failures: Error[] = []
  const engine = echo('a', async ({ context }) => answer(context.slice(-2)))
  const joined = await joinEngine(troupe, engine, { onFailed: error => failures.push(error) })
  const warned = jest.spyOn(troupe.log, 'warn')
  await troupe.journal.append([
    { type: 'engine.left', at: 0, engine: engineId('a'), reason: 'tired', retryAfterMs: 100 },
  ])
  await until(() => warned.mock.calls.length > 0)
  await troupe.close()
  await sleep(150)
  await joined.close()
  expect(failures).toEqual([])
})

test('an engine that does not say how it is costs nobody more than itself', async () => {
  const failures: Error[] = []
  const troupe = await openTroupe({ bus: 'memory:', run: 'r', log, onFailed: error => failures.push(error) })
  cleanups.push(() => troupe.close())
  let asked = 0
  const mute = echo('a', async ({ context }) => answer(context.slice(-2)))
  const status = async () => {
    asked++
    throw new TroupeError('engine.failed', { boundary: 'engine', retriable: false, message: 'no metrics here' })
  }
  const joined = await joinEngine(troupe, { ...mute, status }, { version: 0 })
  await until(() => asked > 1)
  const warned = jest.spyOn(troupe.log, 'warn')
  await troupe.journal.append([{ type: 'engine.left', at: 0, engine: engineId('a'), reason: 'silent' }])
  await until(async () => (await facts(troupe, 'weights.applied')).length === 2)
  expect(warned).toHaveBeenCalledWith(
    expect.objectContaining({ reason: 'silent', err: expect.objectContaining({ message: 'no metrics here' }) }),
    expect.stringContaining('joins again'),
  )
  await troupe.journal.append([{ type: 'turn.assign', engine: engineId('a'), ask: turn(0) }])
  await until(async () => (await facts(troupe, 'turn.completed')).length === 1)
  expect(failures).toEqual([])
  await joined.close()
})

test('an engine that cannot take new weights leaves, and takes them when it comes again', async () => {
  const failures: Error[] = []
  const troupe = await openTroupe({ bus: 'memory:', run: 'r', log, onFailed: error => failures.push(error) })
  cleanups.push(() => troupe.close())
  let tries = 0
  const engine: Engine = {
    ...echo('a', async ({ context }) => answer(context.slice(-2))),
    async updateWeights() {
      const details = { boundary: 'engine', retriable: true, message: 'no such device' } as const
      if (++tries === 1) throw new TroupeError('engine.update_failed', details)
    },
  }
  const joined = await joinEngine(troupe, engine, { onFailed: error => failures.push(error) })
  const weights = { version: policyVersion(1), step: 0, url: 'file:///as/it/is', digest: '', bytes: 0 }
  await troupe.journal.append([{ type: 'weights.published', at: 0, ...weights }])
  await until(async () => (await facts(troupe, 'weights.applied')).length === 1, 20_000)
  expect(await facts(troupe, 'engine.left')).toMatchObject([
    { engine: 'a', reason: 'it could not take version 1: no such device', retryAfterMs: 5000 },
  ])
  expect(tries).toBe(2)
  expect(failures).toEqual([])
  await joined.close()
})
