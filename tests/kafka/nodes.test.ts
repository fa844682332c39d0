/** Tool executors on several nodes over a real broker: each node has a connection of its own, as on another machine. */
import { setTimeout as sleep } from 'node:timers/promises'
import { dispatcher, joinExecutor } from '../../actors'
import type { Tool } from '../../actors/tools/toolPort'
import type { ExecuteTool } from '../../messages/commands'
import type { ToolCompleted } from '../../messages/facts'
import { epoch, executorId, groupId, trajectoryId } from '../../messages/ids'
import { memoryBlobs } from '../../runtime/bus/blobs'
import { openKafkaBus } from '../../runtime/bus/kafka/kafkaBus'
import { type Embedded, openTroupe } from '../../runtime/embed'
import { createLog } from '../../runtime/log'
import { type KafkaServers, startKafka } from '../support/kafka'
import { until } from '../support/until'

jest.setTimeout(120_000)

const log = createLog('test', { level: 'silent' })
let kafka: KafkaServers
beforeAll(async () => {
  kafka = await startKafka()
})
afterAll(() => kafka?.stop())
const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function node(): Promise<Embedded> {
  const bus = await openKafkaBus(kafka.address)
  cleanups.push(() => bus.close())
  const troupe = await openTroupe({ bus, run: 'r', blobs: memoryBlobs(), log })
  cleanups.push(() => troupe.close())
  return troupe
}

const ran = { status: 'ok', exitCode: 0, signal: null, stdout: '', stderr: '', wallMs: 0, cpuMs: 0 } as const
const tool = (ms: number): ReadonlyMap<string, Tool> =>
  new Map([['wait', async (_args, _limits, signal) => sleep(ms, ran, { signal })]])
const call = (member: number): ExecuteTool => ({
  ...{ type: 'tool.execute', trajectory: trajectoryId(groupId('g'), member), turn: 0, call: 0, attempt: 0 },
  ...{ epoch: epoch(0), tool: 'wait', arguments: {}, timeoutMs: 1000, responseChars: 100 },
})

test('nodes share a burst by their lanes, and what a lost node held is answered by the others', async () => {
  const head = await node()
  const feeds = [{ topic: 'tool-calls', from: 'latest' }] as const
  await (await head.host({ behaviour: dispatcher({ leaseMs: 2000 }), feeds })).live
  const common = { tools: tool(40), offerEveryMs: 300 }
  await joinExecutor(await node(), { id: executorId('x1'), lanes: 1, ...common })
  await joinExecutor(await node(), { id: executorId('x4'), lanes: 4, ...common })
  const lost = await node()
  await joinExecutor(lost, { id: executorId('lost'), lanes: 2, tools: tool(60_000), offerEveryMs: 300 })
  await sleep(1000) // all have offered

  const calls = 250
  const started = Date.now()
  await head.journal.append(Array.from({ length: calls }, (_, member) => call(member)))
  const answers = async () =>
    (await head.journal.read('trajectories', 0, 0, 10_000)).map(e => e.message as ToolCompleted)
  await until(async () => (await answers()).length >= calls - 2, 60_000, 50)
  const spanOf = (done: readonly ToolCompleted[], id: string) =>
    Math.max(...done.filter(f => f.executor === id).map(f => f.at)) - started
  const burst = await answers()
  const spans = [spanOf(burst, 'x1'), spanOf(burst, 'x4')]
  expect(Math.max(...spans) / Math.min(...spans)).toBeLessThan(1.2)
  expect(burst.some(f => f.executor === 'lost')).toBe(false)
  await lost.close()
  await until(async () => (await answers()).length === calls, 30_000, 50)
  expect(new Set((await answers()).map(f => f.trajectory)).size).toBe(calls)
})
