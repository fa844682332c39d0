import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { grouper, oldestOpenGroup, rewardedRollout } from '../actors'
import { toolExecutor } from '../actors/tools/toolExecutor'
import { type Tool, toolKey, toolPort } from '../actors/tools/toolPort'
import { selectGroup } from '../kernels'
import type { ExecuteTool } from '../messages/commands'
import type { Fact, GroupSelected } from '../messages/facts'
import { epoch, executorId, groupId, trajectoryId } from '../messages/ids'
import { openLmdbBus } from '../runtime/bus/lmdb/lmdbBus'
import { openMemoryBus } from '../runtime/bus/memory/memoryBus'
import { deriveSeed } from '../runtime/effects'
import { type Embedded, type EmbedOptions, openTroupe } from '../runtime/embed'
import { createLog } from '../runtime/log'
import { until } from './support/until'

const log = createLog('test', { level: 'silent' })
const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function open(options: Partial<EmbedOptions> = {}): Promise<Embedded> {
  const troupe = await openTroupe({ bus: 'memory:', run: 'r', log, ...options })
  cleanups.push(() => troupe.close())
  return troupe
}

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'troupe-embed-'))
  cleanups.push(() => rmSync(path, { recursive: true, force: true }))
  return path
}

const ran = { status: 'ok', exitCode: 0, signal: null, stdout: '', stderr: '', wallMs: 0, cpuMs: 0 } as const
const call = (member: number): ExecuteTool => ({
  type: 'tool.execute',
  trajectory: trajectoryId(groupId('g'), member),
  turn: 0,
  call: 0,
  attempt: 0,
  epoch: epoch(0),
  tool: 'wait',
  arguments: {},
  timeoutMs: 1000,
  responseChars: 100,
})

async function executor(troupe: Embedded, tool: Tool) {
  const host = await troupe.host({
    behaviour: toolExecutor(),
    feeds: [{ topic: 'tool-calls', from: 'latest' }],
    perform: toolPort(new Map([['wait', tool]]), executorId('x'), troupe.fx),
    keyOf: toolKey,
  })
  await host.live
}

test('closing with a drain lets a call that runs end and be answered; without one it is aborted', async () => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  for (const [i, drainMs] of [5000, 0].entries()) {
    const troupe = await open({ bus, run: `r${i}` })
    let began = false
    let aborted = false
    await executor(troupe, async (_args, _limits, signal) => {
      began = true
      await sleep(300, undefined, { signal }).catch(() => {
        aborted = true
      })
      signal.throwIfAborted()
      return ran
    })
    await troupe.journal.append([call(0)])
    await until(() => began)
    await troupe.close({ drainMs })
    expect(aborted).toBe(drainMs === 0)
    expect((await bus.read(`troupe.r${i}.trajectories`, 0, 0)).length).toBe(drainMs === 0 ? 0 : 1)
  }
})

test('a drain that is not over in time ends as an abort', async () => {
  const troupe = await open()
  let aborted = false
  let began = false
  await executor(troupe, async (_args, _limits, signal) => {
    began = true
    await sleep(60_000, undefined, { signal }).catch(() => {
      aborted = true
    })
    signal.throwIfAborted()
    return ran
  })
  await troupe.journal.append([call(0)])
  await until(() => began)
  const start = performance.now()
  await troupe.close({ drainMs: 100 })
  expect(aborted).toBe(true)
  expect(performance.now() - start).toBeLessThan(5000)
})

test("a bus of the caller's stays open, one that was opened here is closed, and a closed troupe hosts nothing", async () => {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const guest = await open({ bus })
  await guest.close()
  await guest.close()
  expect((await bus.listTopics()).length).toBeGreaterThan(0)
  const own = await open()
  await own.close()
  await expect(own.bus.listTopics()).rejects.toMatchObject({ code: 'bus.closed' })
  await expect(executor(own, async () => ran)).rejects.toMatchObject({ code: 'actor.closed' })
})

test('a loop over entries sees what stands and what comes, and ends with the troupe or by leaving it', async () => {
  const troupe = await open()
  const append = (member: number) => troupe.journal.append([call(member)])
  await append(0)
  const seen: number[] = []
  const loop = (async () => {
    for await (const { offset } of troupe.entries(['tool-calls'])) seen.push(offset)
    return 'ended'
  })()
  await until(() => seen.length === 1)
  await append(1)
  await until(() => seen.length === 2)
  for await (const { offset } of troupe.entries(['tool-calls'])) {
    expect(offset).toBe(0)
    break
  }
  await troupe.close()
  expect(await loop).toBe('ended')
  expect(seen).toEqual([0, 1])
})

test('a durable bus that the caller opened needs a place for large messages; by address there is one', async () => {
  const path = directory()
  const bus = await openLmdbBus({ directory: path, mode: 'write' })
  await expect(openTroupe({ bus, run: 'r', log })).rejects.toMatchObject({ code: 'config.no_blobs' })
  // No broker is met: the address alone says that blobs would be lost.
  const kafka = openTroupe({ bus: 'kafka://127.0.0.1:1', run: 'r', log })
  await expect(kafka).rejects.toMatchObject({ code: 'config.no_blobs' })
  const other = openTroupe({ bus: `kafkas://${path}`, run: 'r', log })
  await expect(other).rejects.toMatchObject({ code: 'bus.address_invalid' })
  await bus.close()
  const large = { ...call(0), arguments: { text: 'x'.repeat(1_500_000) } }
  const first = await open({ bus: `lmdb:${path}` })
  await first.journal.append([large])
  await first.close()
  const second = await open({ bus: `lmdb:${path}` })
  expect((await second.journal.read('tool-calls', 0, 0))[0]!.message).toEqual(large)
})

const groupSize = 8
const rewards = [1, 1, 1, 1, 1, 0, 0, 0]
const rollouts = rewards.map((reward, member) => ({
  ...{ group: 'g', member, groupSize, reward, order: member },
  ...{ toolCalls: 2, toolErrors: member % 2, answerTags: 1, turns: 3 },
}))
const selection = { variant: 'paper', keep: 4 } as const
const behaviour = grouper({ runSeed: 7, selection })

async function selected(troupe: Embedded): Promise<readonly GroupSelected[]> {
  const entries = await troupe.journal.read('trajectories', 0, 0, 1000)
  return entries.map(e => e.message as Fact).filter(fact => fact.type === 'group.selected')
}

test('the grouper alone decides as selectGroup does without any bus, and once, however often it is told', async () => {
  const troupe = await open()
  const feeds = [{ topic: 'trajectories', from: 'committed' }] as const
  await troupe.host({ behaviour, feeds, oldestOpen: oldestOpenGroup })
  const facts = rollouts.flatMap(rollout => rewardedRollout(rollout))
  await troupe.journal.append([...facts.slice(0, 10), ...facts, ...facts])
  await until(async () => (await selected(troupe)).length > 0)
  await sleep(100)
  const [fact, ...more] = await selected(troupe)
  expect(more).toEqual([])
  const pure = selectGroup(rollouts, { ...selection, seed: deriveSeed(7, 'select', 'g') })
  if (pure.kind !== 'selected') throw new Error(pure.kind)
  const members = (kept: readonly { member: number; advantage: number }[]) => kept.map(k => [k.member, k.advantage])
  expect(members(fact!.kept)).toEqual(members(pure.kept))
})

test('a group that was half told before a restart is decided after it', async () => {
  const bus = `lmdb:${directory()}`
  const facts = rollouts.flatMap(rollout => rewardedRollout(rollout))
  const spec = {
    behaviour,
    feeds: [{ topic: 'trajectories', from: 'committed' }],
    oldestOpen: oldestOpenGroup,
  } as const
  const first = await open({ bus })
  await (await first.host(spec)).live
  await first.journal.append(facts.slice(0, 13))
  await first.close()
  const second = await open({ bus })
  await (await second.host(spec)).live
  expect(await selected(second)).toEqual([])
  await second.journal.append(facts.slice(13))
  await until(async () => (await selected(second)).length === 1)
})

test('a grouper that owns its partition takes rollouts of its own epoch and ignores those of another', async () => {
  const troupe = await open()
  const feeds = [{ topic: 'trajectories', from: 'committed' }] as const
  await (await troupe.host({ behaviour, feeds, oldestOpen: oldestOpenGroup, owner: 'me' })).live
  const [claim] = await troupe.journal.read('trajectories', 0, 0, 1)
  expect(claim!.message).toMatchObject({ type: 'partition.claimed', owner: 'me' })
  const stale = rollouts.map(rollout => ({ ...rollout, group: 'stale' }))
  await troupe.journal.append(stale.flatMap(rollout => rewardedRollout(rollout, { epoch: epoch(99) })))
  const own = rollouts.map(rollout => ({ ...rollout, order: rollout.order + groupSize }))
  await troupe.journal.append(own.flatMap(rollout => rewardedRollout(rollout, { epoch: epoch(claim!.offset) })))
  await until(async () => (await selected(troupe)).length > 0)
  expect((await selected(troupe)).map(fact => fact.group)).toEqual(['g'])
})
