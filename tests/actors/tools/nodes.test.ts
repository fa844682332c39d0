/** Several nodes on one bus, each with a tool executor of its own; one of them dispatches. */
import { setTimeout as sleep } from 'node:timers/promises'
import { dispatcher, joinExecutor } from '../../../actors'
import { executorPort } from '../../../actors/tools/executorPort'
import { type Tool, toolKey } from '../../../actors/tools/toolPort'
import type { ExecuteTool } from '../../../messages/commands'
import type { ToolCompleted } from '../../../messages/facts'
import { epoch, executorId, groupId, trajectoryId } from '../../../messages/ids'
import type { Bus } from '../../../runtime/bus/bus'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { manualEffects } from '../../../runtime/effects'
import { type Embedded, openTroupe } from '../../../runtime/embed'
import { TroupeError } from '../../../runtime/errors'
import { createLog } from '../../../runtime/log'
import { outOfMemory } from '../../../sandbox/refusals'
import { until } from '../../support/until'

const log = createLog('test', { level: 'silent' })
const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

const leaseMs = 600
const offerEveryMs = 100
const ran = { status: 'ok', exitCode: 0, signal: null, stdout: '', stderr: '', wallMs: 0, cpuMs: 0 } as const
const call = (member: number, tool = 'wait'): ExecuteTool => ({
  ...{ type: 'tool.execute', trajectory: trajectoryId(groupId('g'), member), turn: 0, call: 0, attempt: 0 },
  ...{ epoch: epoch(0), tool, arguments: {}, timeoutMs: 1000, responseChars: 100 },
})

async function node(bus: Bus): Promise<Embedded> {
  const troupe = await openTroupe({ bus, run: 'r', log })
  cleanups.push(() => troupe.close())
  return troupe
}

/** A node that dispatches, and what all executors have answered. */
async function cluster() {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const head = await node(bus)
  const feeds = [{ topic: 'tool-calls', from: 'latest' }] as const
  await (await head.host({ behaviour: dispatcher({ leaseMs }), feeds })).live
  const answers = async () =>
    (await head.journal.read('trajectories', 0, 0, 100_000)).map(e => e.message as ToolCompleted)
  return { bus, head, answers }
}

/** A tool that takes its time; in lanes, so that two calls of one lane never overlap. */
function waiting(ms: number, seen: { running: number; most: number } = { running: 0, most: 0 }) {
  const tool: Tool = async (_args, _limits, signal) => {
    seen.most = Math.max(seen.most, ++seen.running)
    await sleep(ms, undefined, { signal }).finally(() => seen.running--)
    return ran
  }
  return new Map([['wait', tool]])
}

test('executors of 1 and of 4 lanes end a burst within 1.2 of each other, each within its lanes', async () => {
  const { bus, head, answers } = await cluster()
  const seen = [
    { running: 0, most: 0 },
    { running: 0, most: 0 },
  ]
  for (const [k, lanes] of [1, 4].entries()) {
    const tools = waiting(20, seen[k])
    await joinExecutor(await node(bus), { id: executorId(`x${lanes}`), lanes, tools, offerEveryMs })
  }
  await sleep(200) // both have offered
  const started = Date.now()
  const calls = 300
  await head.journal.append(Array.from({ length: calls }, (_, member) => call(member)))
  await until(async () => (await answers()).length === calls)
  const done = await answers()
  const spanOf = (id: string) => Math.max(...done.filter(f => f.executor === id).map(f => f.at)) - started
  const [small, large] = [spanOf('x1'), spanOf('x4')]
  expect(Math.max(small, large) / Math.min(small, large)).toBeLessThan(1.2)
  expect(seen.map(s => s.most)).toEqual([1, 4])
  expect(new Set(done.map(f => f.trajectory)).size).toBe(calls)
})

test('executors join and leave while calls run; each call is answered once', async () => {
  const { bus, head, answers } = await cluster()
  const first = await joinExecutor(await node(bus), { id: executorId('a'), lanes: 2, tools: waiting(30), offerEveryMs })
  await head.journal.append(Array.from({ length: 60 }, (_, member) => call(member)))
  await until(async () => (await answers()).length >= 5)
  await joinExecutor(await node(bus), { id: executorId('b'), lanes: 2, tools: waiting(30), offerEveryMs })
  await until(async () => (await answers()).some(f => f.executor === 'b'))
  await first.leave({ drainMs: 5000 })
  const atLeave = (await answers()).filter(f => f.executor === 'a').length
  await until(async () => (await answers()).length === 60)
  const done = await answers()
  expect(done.filter(f => f.executor === 'a')).toHaveLength(atLeave)
  expect(new Set(done.map(f => f.trajectory)).size).toBe(60)
})

test('calls of a node that is gone without a word are answered by another after the lease', async () => {
  const { bus, head, answers } = await cluster()
  const lost = await node(bus)
  await joinExecutor(lost, { id: executorId('lost'), lanes: 3, tools: waiting(60_000), offerEveryMs })
  await sleep(150)
  await head.journal.append(Array.from({ length: 3 }, (_, member) => call(member)))
  await sleep(150)
  await joinExecutor(await node(bus), { id: executorId('b'), lanes: 1, tools: waiting(5), offerEveryMs })
  await sleep(2 * leaseMs)
  expect(await answers()).toEqual([]) // a lease is renewed as long as the call is held
  await lost.close()
  await until(async () => (await answers()).length === 3)
  expect((await answers()).map(f => f.executor)).toEqual(['b', 'b', 'b'])
})

test('an executor that leaves while the log cannot be written ends its running calls all the same', async () => {
  const { bus, head } = await cluster()
  let isFull = false
  const full = new TroupeError('bus.disk_full', { boundary: 'bus', retriable: true, message: 'no space left' })
  const append: Bus['append'] = records => (isFull ? Promise.reject(full) : bus.append(records))
  const seen = { running: 0, most: 0 }
  const own = await node({ ...bus, append })
  const left = await joinExecutor(own, { id: executorId('a'), lanes: 2, tools: waiting(60_000, seen), offerEveryMs })
  await head.journal.append([call(0)])
  await until(() => seen.running === 1)
  isFull = true
  await expect(left.leave()).rejects.toMatchObject({ code: 'bus.disk_full' })
  expect(seen.running).toBe(0)
  isFull = false
})

test('a tool that is broken on one node does not lose the call: it is made again when its lease has ended', async () => {
  const { bus, head, answers } = await cluster()
  let faults = 0
  const tool: Tool = async () => {
    if (faults++ === 0) throw new Error('out of order')
    return ran
  }
  await joinExecutor(await node(bus), {
    ...{ id: executorId('a'), lanes: 1, offerEveryMs },
    tools: new Map([['wait', tool]]),
  })
  await head.journal.append([call(0)])
  await until(async () => (await answers()).length === 1)
  expect(faults).toBe(2)
})

test('a call that the machine has no memory for is not answered: it is made again when its lease has ended', async () => {
  let tries = 0
  const tool: Tool = async () => {
    if (tries++ < 2) throw outOfMemory()
    return ran
  }
  const never = new AbortController().signal
  const options = { incarnation: '1', lanes: 2, fx: manualEffects(), tools: new Map([['wait', tool]]) }
  const port = executorPort({ ...options, id: executorId('x') })
  // No answer and no failure, which would start the executor again; and the lane is free for other calls.
  expect(await port.perform({ kind: 'run', ask: call(0) }, never)).toBeUndefined()
  expect((await port.perform({ kind: 'offer' }, never))?.commands).toMatchObject([{ held: [] }])

  tries = 0
  const { bus, head, answers } = await cluster()
  await joinExecutor(await node(bus), {
    ...{ id: executorId('a'), lanes: 1, offerEveryMs },
    tools: new Map([['wait', tool]]),
  })
  await head.journal.append([call(0)])
  await until(async () => (await answers()).length === 1)
  expect([tries, (await answers())[0]?.status]).toEqual([3, 'ok'])
})

test.each([
  [0, 64],
  [1, 64],
  [10, 14],
  [100, 1],
  [400, 0],
])(
  'calls of %d ms are asked for ahead of two lanes: %d, at a turnaround of 20 ms and a window of 50',
  async (tookMs, ahead) => {
    const fx = manualEffects()
    const tool: Tool = async () => {
      fx.advance(tookMs)
      return ran
    }
    const port = executorPort({
      ...{ id: executorId('x'), incarnation: '1', lanes: 2, turnaroundMs: 20, fx },
      tools: new Map([['wait', tool]]),
    })
    const never = new AbortController().signal
    for (let member = 0; member < 3; member++) await port.perform({ kind: 'run', ask: call(member) }, never)
    const offered = await port.perform({ kind: 'offer' }, never)
    expect(offered?.commands).toMatchObject([{ type: 'executor.slots', slots: 2 + ahead, held: [] }])
  },
)

test('while calls wait for a worker, answers are recorded in fewer appends; the last ones do not wait as long', async () => {
  jest.useFakeTimers()
  try {
    const fx = { ...manualEffects(), elapsed: () => performance.now() }
    const tool: Tool = async () => {
      await new Promise(resolve => setTimeout(resolve, 5))
      return ran
    }
    const port = executorPort({
      ...{ id: executorId('x'), incarnation: '1', lanes: 1, turnaroundMs: 20, fx },
      tools: new Map([['wait', tool]]),
    })
    const appends: { readonly at: number; readonly answers: number }[] = []
    const begun = performance.now()
    const calls = Array.from({ length: 40 }, async (_, member) => {
      const answer = await port.perform({ kind: 'run', ask: call(member) }, new AbortController().signal)
      if (answer !== undefined) appends.push({ at: performance.now() - begun, answers: answer.facts.length })
    })
    await jest.advanceTimersByTimeAsync(1000)
    await Promise.all(calls)
    expect(appends.reduce((sum, { answers }) => sum + answers, 0)).toBe(40)
    expect(Math.max(...appends.map(({ answers }) => answers))).toBe(10)
    expect(appends.length).toBeLessThanOrEqual(8)
    expect(appends.at(-1)!.at).toBeLessThanOrEqual(40 * 5 + 10)
  } finally {
    jest.useRealTimers()
  }
})

test('an executor that leaves still holds the calls whose answers wait to be recorded, so no other runs them', async () => {
  jest.useFakeTimers()
  try {
    const port = executorPort({
      ...{ id: executorId('x'), incarnation: '1', lanes: 2, fx: manualEffects() },
      tools: new Map<string, Tool>([['wait', async () => ran]]),
    })
    const never = new AbortController().signal
    await port.perform({ kind: 'run', ask: call(0) }, never)
    const waiting = [1, 2].map(member => port.perform({ kind: 'run', ask: call(member) }, never))
    await jest.advanceTimersByTimeAsync(1)
    expect(port.leave().held).toEqual([1, 2].map(member => toolKey(call(member))))
    await jest.advanceTimersByTimeAsync(50)
    expect((await Promise.all(waiting)).flatMap(answer => answer?.facts ?? [])).toHaveLength(2)
    expect(port.leave().held).toEqual([])
  } finally {
    jest.useRealTimers()
  }
})

test('an executor refuses to join where the calls stand in several partitions', async () => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  await bus.createTopics([{ topic: 'acme.calls', partitions: 3, retentionMs: null }])
  const troupe = await openTroupe({ bus, run: 'r', log, topics: { 'tool-calls': 'acme.calls' } })
  cleanups.push(() => troupe.close())
  const joining = joinExecutor(troupe, { id: executorId('a'), lanes: 1, tools: waiting(1) })
  await expect(joining).rejects.toMatchObject({ code: 'config.calls_partitioned' })
})
