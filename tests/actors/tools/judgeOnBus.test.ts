/** A judge's front over a bus, and executors that come, go, die and are refused. The bus is in memory, the sandboxes are real. */
import { setTimeout as sleep } from 'node:timers/promises'
import { environmentOf } from '../../../actors/tools/codeEnvironment'
import { joinExecutor } from '../../../actors/tools/joinExecutor'
import type { BusSandbox } from '../../../actors/tools/judge/busSandbox'
import { frontDispatcher } from '../../../actors/tools/judge/frontDispatcher'
import { joinJudge, openFront } from '../../../actors/tools/judge/joinJudge'
import type { ExecuteTool, OfferSlots } from '../../../messages/commands'
import { executorId, runId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { manualEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { createLog } from '../../../runtime/log'
import { openJudge, openSandbox, type Sandbox } from '../../../sandbox'
import type { Verdict } from '../../../sandbox/judge/verdict'
import { until } from '../../support/until'

jest.setTimeout(60_000)
const log = createLog('test', { level: 'silent' })
const name = runId('judge')
const offerEveryMs = 100

let sandbox: Sandbox
let environment: Awaited<ReturnType<typeof environmentOf>>
beforeAll(async () => {
  sandbox = await openSandbox({ zygotes: 1, lanes: 8 })
  environment = await environmentOf({})
})
afterAll(() => sandbox.close())
const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function judgeOnBus() {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const failures: Error[] = []
  const onFailed = (error: Error) => void failures.push(error)
  const front = await openFront({ bus, name, onFailed, log, leaseMs: 1000 })
  cleanups.push(() => front.close())
  const join = async (executor: string, change: object = {}) => {
    const given = { bus, name, executor, sandbox, environment, onFailed, offerEveryMs, log, ...change }
    const joined = await joinJudge(given)
    cleanups.push(() => joined.leave())
    return joined
  }
  return { bus, front, join, failures }
}

async function serve(front: BusSandbox, options: object = {}) {
  const judge = await openJudge(front, { port: 0, ...options })
  cleanups.push(() => judge.close())
  const ask = async <T>(path: string, body?: unknown, signal?: AbortSignal) => {
    const post = { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
    const answer = await fetch(`${judge.url}${path}`, { ...(body === undefined ? {} : post), signal: signal ?? null })
    return (await answer.json()) as T
  }
  return ask
}

test("the judge's answers are those of a judge on one host, whichever executor ran them", async () => {
  const { front, join } = await judgeOnBus()
  await join('a')
  await join('b')
  const [here, over] = [await openJudge(sandbox, { port: 0 }), await serve(front)]
  cleanups.push(() => here.close())
  await until(() => front.executors === 2)
  const batch = [
    ...Array.from({ length: 40 }, (_, n) => ({ type: 'python', solution: `print(${n})`, expected_output: `${n}` })),
    { type: 'python', solution: 'raise ValueError(input())', input: 'why' },
    { type: 'python', solution: 'import sys; sys.stdout.buffer.write(b"\\xff" * 2000)' },
    { type: 'math', solution: '1', expected_output: '1' },
    { type: 'python' },
  ]
  const body = { type: 'batch', submissions: batch }
  const answer = await fetch(`${here.url}/run/batch`, { method: 'POST', body: JSON.stringify(body) })
  const verdicts = ({ results }: { results: readonly Verdict[] }) =>
    results.map(one => ({ ...one, sub_id: '', cost: 0 }))
  const local = verdicts((await answer.json()) as never)
  const remote = verdicts(await over('/run/batch', body))
  expect(remote).toEqual(local)
  expect(remote.filter(({ success }) => success)).toHaveLength(41)
  expect(await over('/status')).toMatchObject({ level: sandbox.level, num_workers: front.lanes, answered: 42 })
})

test('submissions wait for the first executor; what one that is gone without a word had is run by another', async () => {
  const { bus, front, join } = await judgeOnBus()
  const ask = await serve(front)
  const first = ask<Verdict>('/run', { type: 'python', solution: 'print(1)' })
  const lost = await openTroupe({ bus, run: name, blobs: memoryBlobs(), log })
  let taken = 0
  const perform = async (_ask: ExecuteTool, signal: AbortSignal) => {
    taken++
    await sleep(60_000, undefined, { signal })
    return undefined
  }
  const tools = { names: ['sandbox'], perform }
  const offer = { level: sandbox.level, digest: environment.digest, python: '', packages: {} }
  await joinExecutor(lost, { id: executorId('lost'), lanes: 4, tools, sandbox: offer, offerEveryMs })
  await until(() => taken === 1)
  await lost.close()
  await join('b')
  expect((await first).stdout).toBe('1\n')
  await until(() => front.executors === 1)
})

test('an executor of another environment is refused with what differs; once all have left it may join', async () => {
  const { front, join, failures } = await judgeOnBus()
  const first = await join('a')
  await until(() => front.executors === 1)
  const other = { ...environment, digest: 'other', packages: { ...environment.packages, numpy: '1.0' } }
  await join('b', { environment: other })
  await until(() => failures.length === 1)
  expect(failures[0]).toMatchObject({
    code: 'config.other_environment',
    message: expect.stringMatching(/numpy [\d.]+ → 1\.0/),
  })
  expect(front.executors).toBe(1)
  await first.leave()
  await until(() => front.executors === 0)
  await join('c', { environment: other })
  await until(() => front.executors === 1)
})

test('a call whose client is gone is ended where it runs, and its lane is free', async () => {
  const { front, join } = await judgeOnBus()
  await join('a')
  const ask = await serve(front, { timeoutMs: 30_000 })
  await until(() => front.executors === 1)
  const client = new AbortController()
  const spins = Array.from({ length: 8 }, () =>
    ask('/run', { type: 'python', solution: 'while True: pass' }, client.signal).catch(() => 'gone'),
  )
  const running = async () => (await ask<{ running: number }>('/status')).running
  await until(async () => (await running()) === 8)
  client.abort()
  expect(await Promise.all(spins)).toEqual(Array(8).fill('gone'))
  const began = performance.now()
  expect((await ask<Verdict>('/run', { type: 'python', solution: 'print(2)' })).stdout).toBe('2\n')
  expect(performance.now() - began).toBeLessThan(10_000)
})

test('what does not fit into a record is refused by name, or cut with its true size', async () => {
  const { front, join } = await judgeOnBus()
  await join('a')
  const long = await front.run({ id: '1', code: '#'.repeat(300_001) })
  expect(long).toMatchObject({ id: '1', status: 'rejected', reason: expect.stringContaining('300001 characters') })
  const much = await front.run({ id: '2', code: 'print("x" * 999_999)', maxOutputBytes: 1_000_000 })
  expect([much.id, much.stdout.length, much.stdoutBytes]).toEqual(['2', 384 * 1024, 1_000_000])
})

test('a second front of the name stands by until the first has closed', async () => {
  const { bus, front, failures } = await judgeOnBus()
  let stood = false
  const second = openFront({
    bus,
    name,
    log,
    onFailed: error => failures.push(error),
    onStandingBy: () => (stood = true),
  })
  await until(() => stood)
  await front.close()
  await (await second).close()
  expect(failures).toEqual([])
})

test('an executor that offers no sandbox is refused, and orders to end calls name who runs them', () => {
  const front = frontDispatcher()
  const [state, fx] = [front.initial(), manualEffects(0)]
  const offer = (id: string, sandboxOf: object): OfferSlots => ({
    ...{ type: 'executor.slots', executor: executorId(id), incarnation: '1', slots: 2, tools: ['sandbox'], held: [] },
    ...sandboxOf,
  })
  expect(front.decide(state, offer('a', {}), fx).commands).toMatchObject([{ type: 'executor.refused', executor: 'a' }])
  expect(state.calls.executors.size).toBe(0)
})

test('a front that cannot be opened, and an executor that cannot join, leave nothing open on the bus', async () => {
  const open = openMemoryBus()
  cleanups.push(() => open.close())
  const subscribed = new Set<unknown>()
  let left = 0
  const breaks = (at: number) =>
    new Proxy(open, {
      get(target, key) {
        if (key !== 'subscribe') {
          const value = Reflect.get(target, key) as unknown
          return typeof value === 'function' ? value.bind(target) : value
        }
        return async (...args: Parameters<typeof open.subscribe>) => {
          if (left++ === at) throw new Error('no more subscriptions')
          const member = await target.subscribe(...args)
          subscribed.add(member)
          const close = member.close.bind(member)
          return Object.assign(member, { close: () => close().finally(() => subscribed.delete(member)) })
        }
      },
    })
  const onFailed = () => {}
  for (const at of [0, 1, 2]) {
    left = 0
    await expect(openFront({ bus: breaks(at), name, onFailed, log })).rejects.toThrow('no more subscriptions')
    expect([at, subscribed.size]).toEqual([at, 0])
  }
  left = 0
  const joining = joinJudge({ bus: breaks(0), name, executor: 'a', sandbox, environment, onFailed, log })
  await expect(joining).rejects.toThrow('no more subscriptions')
  expect(subscribed.size).toBe(0)
})
