import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message } from '../../../messages'
import type { Fact, StageChanged, ToolCompleted } from '../../../messages/facts'
import { engineId, epoch, groupId, runId, trajectoryId } from '../../../messages/ids'
import { topics } from '../../../messages/topics'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import type { Bus, BusRecord } from '../../../runtime/bus/bus'
import { openLmdbBus } from '../../../runtime/bus/lmdb/lmdbBus'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import type { Following, Journal, TopicsOnBus } from '../../../runtime/journal/journal'
import { openJournal } from '../../../runtime/journal/openJournal'
import { knowSecret } from '../../../runtime/secrets/knownSecrets'
import { requested } from '../../support/facts'
import { until } from '../../support/until'

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

function memoryBus() {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  return bus
}

const journalOn = (bus: ReturnType<typeof openMemoryBus>, names?: TopicsOnBus) =>
  openJournal(bus, memoryBlobs(), runId('r'), names)

const stage = (name: string): StageChanged => ({ type: 'stage.changed', at: 0, stage: name, step: 0, reason: '' })
const namesOf = (facts: readonly { readonly message: unknown }[]) => facts.map(f => (f.message as StageChanged).stage)

async function follow(journal: Journal, group: string, seen: string[], from: 'oldest' | 'committed' = 'committed') {
  const onError = (error: Error) => seen.push(`error ${error.message}`)
  const following: Following = await journal.follow(
    { group, feeds: [{ topic: 'learner', from }], onError },
    async entries => {
      seen.push(...namesOf(entries))
    },
  )
  cleanups.push(() => following.close())
  return following
}

test('messages go to the topics that the user named, and come back under the names that Troupe gave them', async () => {
  const bus = memoryBus()
  const journal = journalOn(bus, { learner: 'acme.learner', 'dead-letters': 'acme.dead' })
  await journal.create(2)
  const onBus = (await bus.listTopics()).map(t => t.topic)
  expect(onBus).toEqual(expect.arrayContaining(['acme.learner', 'acme.dead', 'troupe.r.trajectories']))
  expect(onBus).not.toContain('troupe.r.learner')
  const [position] = await journal.append([stage('one')])
  expect(position).toEqual({ topic: 'acme.learner', partition: 0, offset: 0 })
  expect(await journal.read('learner', 0, 0)).toMatchObject([{ topic: 'learner', offset: 0, message: stage('one') }])
  const seen: string[] = []
  await follow(journal, 'g', seen)
  await until(() => seen.length === 1)

  await bus.append([{ topic: 'acme.learner', key: 'k', headers: {}, value: Buffer.from('not ours') }])
  await until(async () => (await bus.offsets('acme.dead', 0)).next === 1)
  const [dead] = await bus.read('acme.dead', 0, 0)
  expect(dead!.headers.origin).toBe('acme.learner:0:1')
})

test('commands are kept for as long as the run asks, everything else for ever', async () => {
  const bus = memoryBus()
  await journalOn(bus).create(1, 300_000)
  const kept = new Map((await bus.listTopics()).map(({ topic, retentionMs }) => [topic, retentionMs]))
  for (const { name, holds } of Object.values(topics))
    expect([name, kept.get(`troupe.r.${name}`)]).toEqual([name, holds === 'commands' ? 300_000 : null])
})

test("a topic that the user made is taken as it is; one that has to be single is refused where it isn't", async () => {
  const bus = memoryBus()
  const config = { partitions: 3, retentionMs: 1000 }
  await bus.createTopics([
    { topic: 'acme.calls', ...config },
    { topic: 'acme.learner', ...config },
  ])
  const journal = journalOn(bus, { 'tool-calls': 'acme.calls' })
  await journal.create(1)
  expect(await journal.partitionsOf('tool-calls')).toBe(3)
  expect(await journal.partitionsOf('trajectories')).toBe(1)
  await expect(journalOn(bus, { learner: 'acme.learner' }).create(1)).rejects.toMatchObject({
    code: 'bus.topic_mismatch',
  })
})

test('names that name no topic, or two topics alike, are refused before anything is written', () => {
  const bus = memoryBus()
  const misspelt = { trajectory: 'acme' } as TopicsOnBus
  expect(() => journalOn(bus, misspelt)).toThrow(expect.objectContaining({ code: 'config.topic_unknown' }))
  const alike: TopicsOnBus = { turns: 'acme', runs: 'acme' }
  expect(() => journalOn(bus, alike)).toThrow(expect.objectContaining({ code: 'config.topics_collide' }))
  expect(() => journalOn(bus, { turns: 'troupe.r.runs' })).toThrow(
    expect.objectContaining({ code: 'config.topics_collide' }),
  )
})

test('a group goes on where it committed, after the process too; another group begins at the oldest', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-journal-'))
  cleanups.push(() => rmSync(directory, { recursive: true, force: true }))
  const first = await openLmdbBus({ directory, mode: 'write' })
  const before = openJournal(first, memoryBlobs(), runId('r'))
  await before.create(1)
  await before.append(['a', 'b', 'c'].map(stage))
  const seen: string[] = []
  const following = await follow(before, 'g', seen)
  await until(() => seen.length === 3)
  expect(await before.committed('g', 'learner', 0)).toBeUndefined()
  await following.commit('learner', 0, 2)
  await following.close()
  await first.close()

  const second = await openLmdbBus({ directory, mode: 'write' })
  cleanups.push(() => second.close())
  const after = openJournal(second, memoryBlobs(), runId('r'))
  expect(await after.committed('g', 'learner', 0)).toBe(2)
  const again: string[] = []
  const other: string[] = []
  const replayed: string[] = []
  await follow(after, 'g', again)
  await follow(after, 'other', other)
  await follow(after, 'g', replayed, 'oldest')
  await until(() => again.length === 1 && other.length === 3 && replayed.length === 3)
  expect(again).toEqual(['c'])
})

test('a foreign record is put with the dead letters once, however many follow its topic and reread it', async () => {
  const bus = memoryBus()
  const journal = journalOn(bus)
  await journal.create(1)
  await bus.append([{ topic: 'troupe.r.learner', key: 'k', headers: {}, value: Buffer.from('not ours') }])
  await journal.append([stage('after')])
  const seen: string[][] = [[], [], []]
  for (const [i, list] of seen.entries()) await follow(journal, `g${i}`, list)
  await until(() => seen.every(list => list.length === 1))
  for (let again = 0; again < 3; again++) {
    expect(namesOf(await journal.read('learner', 0, 0))).toEqual(['after'])
  }
  expect(await bus.offsets('troupe.r.dead-letters', 0)).toMatchObject({ next: 1 })
  const [{ timestamp: at }] = (await bus.read('troupe.r.learner', 0, 0)) as [BusRecord]
  const said = (await journal.read('runs', 0, 0)).map(entry => entry.message)
  const error = expect.stringMatching(/./)
  expect(said).toEqual([{ type: 'record.refused', at, origin: 'troupe.r.learner:0:0', error }])
})

test('all facts of a group come back from one partition in the order of their appends', async () => {
  const bus = memoryBus()
  const journal = journalOn(bus)
  await journal.create(3)
  const groups = ['g1', 'g2', 'g3', 'g4', 'g5']
  for (let member = 0; member < 4; member++) await journal.append(groups.map(group => requested(group, member)))
  const places = new Map<string, Set<number>>()
  const members = new Map<string, number[]>()
  for (let partition = 0; partition < 3; partition++) {
    for (const { message } of await journal.read('trajectories', partition, 0)) {
      const fact = message as Fact & { readonly type: 'rollout.requested' }
      places.set(fact.group, (places.get(fact.group) ?? new Set()).add(partition))
      members.set(fact.group, [...(members.get(fact.group) ?? []), fact.member])
    }
  }
  expect([...places.values()].map(set => set.size)).toEqual([1, 1, 1, 1, 1])
  expect([...members.values()]).toEqual(groups.map(() => [0, 1, 2, 3]))
})

test('a log is read to its end though a broker does not know of it yet; one that stays short is an error', async () => {
  const inner = memoryBus()
  /** Where the broker that answers believes the log to end. */
  let end = 0
  let asked = 0
  const bus: Bus = {
    ...inner,
    read: async (topic, partition, offset, max) =>
      (await inner.read(topic, partition, offset, max)).filter(record => record.offset < end),
    async offsets(topic, partition) {
      const { oldest, next } = await inner.offsets(topic, partition)
      if (++asked === 3) end = 3
      return { oldest, next: Math.min(next, end) }
    },
  }
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  await journal.append(['one', 'two', 'three'].map(stage))
  end = 2
  const read: string[] = []
  for await (const entries of journal.readTo('learner', 0, 0, 3)) read.push(...namesOf(entries))
  expect(read).toEqual(['one', 'two', 'three'])
  const beyond = async () => {
    for await (const entries of journal.readTo('learner', 0, 0, 5)) read.push(...namesOf(entries))
  }
  await expect(beyond()).rejects.toMatchObject({
    code: 'bus.offset_out_of_range',
    message: expect.stringContaining('has offsets 0 to 2, so offset 5 is out of range'),
  })
}, 30_000)

test('a long read gives the event loop a turn between its batches, so that timers and answers come through', async () => {
  const journal = journalOn(memoryBus())
  await journal.create(1)
  await journal.append(Array.from({ length: 3000 }, (_, at) => stage(`${at}`)))
  let turns = 0
  const count = () => {
    turns++
    next = setImmediate(count)
  }
  let next = setImmediate(count)
  let batches = 0
  for await (const _ of journal.readTo('learner', 0, 0, 3000)) batches++
  clearImmediate(next)
  expect(batches).toBeGreaterThan(2)
  expect(turns).toBeGreaterThanOrEqual(batches - 1)
})

test('a follower that names a key gets the commands of that key only, in order', async () => {
  const bus = memoryBus()
  const journal = journalOn(bus)
  await journal.create(1)
  const seen: string[] = []
  const following = await journal.follow(
    {
      group: 'engine-1',
      feeds: [{ topic: 'assignments', from: 'oldest', key: 'engine-1' }],
      onError: error => seen.push(`error ${error.message}`),
    },
    async entries => {
      for (const { message, offset } of entries)
        if (message.type === 'trajectory.evict') seen.push(`${message.engine} ${offset}`)
    },
  )
  cleanups.push(() => following.close())
  const evict = (k: number) =>
    ({
      type: 'trajectory.evict',
      trajectory: trajectoryId(groupId('g'), k),
      engine: engineId(`engine-${k % 3}`),
    }) as const
  await journal.append([0, 1, 2, 3, 4, 5, 6, 7].map(evict))
  await until(() => seen.length >= 3)
  expect(seen).toEqual(['engine-1 1', 'engine-1 4', 'engine-1 7'])
})

test('texts from outside are appended without known secrets; what a model or a person wrote, and short secrets in a tool’s result, stay', async () => {
  const [short, long] = [knowSecret('p0stgr3s'), knowSecret('a-long-secret-of-the-log')]
  const said = `${short} ${long}`
  const trajectory = trajectoryId(groupId('g'), 0)
  const step = { name: 's', rewards: {}, over: true, fault: { how: 'task.failed', why: said } }
  const tool: ToolCompleted = {
    ...{ type: 'tool.completed', at: 0, trajectory, turn: 0, call: 0, attempt: 0, tool: 't', status: 'error', step },
    ...{ text: said, stdout: said, stderr: said, exitCode: 1, wallMs: 0, cpuMs: 0, executor: null },
  }
  const common = { at: 0, trajectory, attempt: 0 }
  const finished = { turns: 0, sampledTokens: 0, toolCalls: 0, toolErrors: 0, answerTags: 0, epoch: epoch(0) }
  const engine = engineId('e')
  const both = '[redacted] [redacted]'
  const table: readonly (readonly [Message, object])[] = [
    [tool, { text: `${short} [redacted]`, stdout: `${short} [redacted]`, stderr: `${short} [redacted]` }],
    [tool, { step: { ...step, fault: { how: 'task.failed', why: both } } }],
    [{ type: 'rollout.finished', at: 0, trajectory, outcome: 'failed', reason: said, ...finished }, { reason: both }],
    [{ type: 'reward.failed', ...common, how: 'raised', why: said }, { why: both }],
    [
      { type: 'reward.assigned', ...common, reward: 1, answer: said, how: 'h', why: said },
      { answer: said, why: both },
    ],
    [{ type: 'engine.left', at: 0, engine, reason: said }, { reason: both }],
    [{ type: 'alarm.raised', at: 0, alarm: 'a', message: said }, { message: both }],
    [
      { type: 'run.finished', at: 0, run: runId('r'), outcome: 'failed', reason: said, steps: 0, summary: {} },
      { reason: both },
    ],
    [{ ...stage('s'), reason: said }, { reason: both }],
    [{ type: 'control.obeyed', at: 0, id: 'i', offset: 0, order: 'abort', reason: said }, { reason: said }],
  ]
  const journal = journalOn(memoryBus())
  await journal.create(1)
  for (const [message, shown] of table) {
    const { topic, partition, offset } = (await journal.append([message]))[0]!
    const name = Object.values(topics).find(one => topic === `troupe.r.${one.name}`)!.name
    expect(await journal.read(name, partition, offset)).toMatchObject([{ message: shown }])
  }
  await journal.deadLetter(
    { topic: 'troupe.r.runs', partition: 0, offset: 0, timestamp: 0, key: 'k', headers: {}, value: Buffer.from('{') },
    new Error(said),
  )
  const [letter] = await journal.read('runs', 0, (await journal.offsets('runs', 0)).next - 1)
  expect(letter!.message).toMatchObject({ type: 'record.refused', error: both })
})
