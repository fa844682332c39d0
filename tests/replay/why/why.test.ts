/** `troupe why`: who owes which answer, over recorded histories and over hangs that are planted in a log. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Message } from '../../../messages'
import type { ActorStatus, EngineStatus, GenerateTurn, OfferSlots } from '../../../messages/commands'
import type { EngineJoined, Fact } from '../../../messages/facts'
import {
  type EngineId,
  engineId,
  epoch,
  executorId,
  groupId,
  policyVersion,
  runId,
  type TrajectoryId,
} from '../../../messages/ids'
import { routeOf } from '../../../messages/topics'
import { answerers } from '../../../replay/why/answerers'
import { owedBy, rolloutWaits } from '../../../replay/why/chains'
import { type Explanation, explain, type Subject } from '../../../replay/why/explain'
import { gatherEvidence } from '../../../replay/why/gatherEvidence'
import type { Entry } from '../../../runtime/journal/journal'
import { troupe } from '../../support/cli'
import { claim, completed, requested, toolCall, toolName } from '../../support/facts'
import { changed, quickstartHistory, saveHistory } from '../../support/histories'
import { asked } from '../../support/recordedLog'

/** Log entries of messages, each in its topic's order; partition 0. */
function entriesOf(messages: readonly Message[]): readonly Entry[] {
  const next = new Map<string, number>()
  return messages.map(message => {
    const { topic } = routeOf(message, runId('r'))
    const offset = next.get(topic) ?? 0
    next.set(topic, offset + 1)
    return { message, topic, partition: 0, offset, timestamp: 'at' in message ? message.at : now - 40_000 }
  })
}

const now = 1_000_000
const group = groupId('s0001.0000')
const id = `${group}/0` as TrajectoryId
const e0 = engineId('e0')
const e1 = engineId('e1')
const box = executorId('box')

const actor = (path: string, change: Partial<ActorStatus> = {}): ActorStatus => ({
  ...{ type: 'actor.status', at: now - 50_000, actor: path, kind: 'behaviour', state: 'up', restarts: 0 },
  ...{ tree: 't', host: 'here', pid: 7 },
  ...change,
})
const status = (at: number): EngineStatus => ({
  ...{ type: 'engine.status', at, engine: e0, version: policyVersion(0), kvTokens: 1000, referencedTokens: 400 },
  ...{ cachedTokens: 0, running: 1, waiting: 0, generatedTokens: 9, prefilledTokens: 9, preemptions: 0 },
  ...{ busyMs: 1, cpuMs: 1, maxRssBytes: 1 },
})
const ledger = (at: number): Message => ({ type: 'ledger.status', at, engine: e0, driftTokens: 0, foreignTokens: 0 })
const actors = ['', '/inference/e0', '/coordination/scheduler', '/coordination/owner', '/coordination/verifier'].concat(
  ...[['/coordination/dispatcher', '/tools/sandbox-0/tool-executor.box', '/learning/trainer', '/learning/learner']],
)
const begun: readonly Message[] = [
  ...actors.map(path => actor(`root${path}`)),
  { type: 'weights.published', at: now - 60_000, version: policyVersion(0), step: 0, url: 'w', digest: 'd', bytes: 1 },
  {
    ...{
      type: 'engine.joined',
      at: now - 59_000,
      engine: e0,
      kind: 'local',
      model: 'm',
      kvTokens: 1000,
      blockTokens: 16,
    },
    ...{ maxSequences: 8, contextTokens: 512, prefixSharing: false, prioritySign: 0 },
  },
  { type: 'weights.applied', at: now - 58_000, engine: e0, version: policyVersion(0), digest: 'd' },
  { ...claim(), at: now - 57_000 },
  requested(group, 0, { at: now - 41_000, groupSize: 1 }),
]
const ask = asked(id, Int32Array.of(1, 2, 3), { at: now - 40_000 })
const { trajectory, turn, attempt, engine, seed, sampling, maxTokens } = ask
const generate: GenerateTurn = {
  ...{ type: 'turn.generate', trajectory, turn, attempt, epoch: epoch(0), engine, seed, sampling, maxTokens },
  ...{ context: Int32Array.of(1, 2, 3), resumedTokens: 0, promptTokens: 3, boundTokens: 400 },
  ...{ order: 0, minVersion: policyVersion(0) },
}
const assign: Message = { type: 'turn.assign', engine: e0, ask: generate }
const turnOpen: readonly Message[] = [...begun, ask, generate]

function why(
  messages: readonly Message[],
  subject: Subject = { kind: 'trajectory', trajectory: id },
  standing = 'running',
) {
  const standings = new Map([['t', standing as 'running']])
  return explain(gatherEvidence(entriesOf(messages)).evidence(), subject, { now, standings })
}

/** What is owed to the first wait: for what, by whom, in which state, and the names of its chain. */
function owed({ waits }: Explanation) {
  const { oldest } = waits[0]!
  const { kind, name, says } = owedBy(oldest)
  return {
    for: oldest.for,
    by: `${kind} ${name}`,
    state: oldest.state,
    since: oldest.since,
    says,
    chain: oldest.chain.map(l => l.name),
  }
}

test('a turn waits for the engine that has it, since it was asked, and the chain has the last event of each', () => {
  const found = why([...turnOpen, assign, status(now - 500), ledger(now - 500)])
  expect(found.outcome).toEqual({ kind: 'waiting' })
  expect(owed(found)).toEqual({
    ...{ for: 'generation', by: 'engine e0', state: 'working', since: now - 40_000 },
    says: '1 running, 0 waiting, 40 % of its KV cache in use, policy version 0',
    chain: ['turn.asked', 'turn.generate', 'turn.assign', 'e0'],
  })
  expect(found.waits[0]!.oldest.chain.map(link => link.last?.what)).toEqual([
    ...['turn.asked', 'turn.generate', 'turn.assign', 'engine.status'],
  ])
})

test.each<[string, readonly Message[], object]>([
  [
    'an engine that says nothing any more is silent',
    [...turnOpen, assign, status(now - 30_000)],
    { by: 'engine e0', state: 'silent', says: expect.stringMatching(/^no status for 30 s/) },
  ],
  [
    'an engine whose process died is down, with the reason',
    [
      ...turnOpen,
      assign,
      status(now - 500),
      actor('root/inference/e0', { state: 'restarting', restarts: 2, reason: 'exit 9' }),
    ],
    { by: 'engine e0', state: 'down', says: expect.stringMatching(/restarting, 2 restarts: exit 9/) },
  ],
  [
    'an engine that left is down, with the reason',
    [...turnOpen, assign, { type: 'engine.left', at: now - 9000, engine: e0, reason: 'no answer for 15 s' }],
    { by: 'engine e0', state: 'down', says: 'it left the run 9 s ago: no answer for 15 s' },
  ],
  [
    'a scheduler that assigns nothing while engines report is silent',
    [...turnOpen, status(now - 500), ledger(now - 45_000)],
    { by: 'actor scheduler', state: 'silent', says: expect.stringMatching(/^engines report, but the scheduler/) },
  ],
  [
    'a turn that no engine has room for is queued at the scheduler',
    [...turnOpen, status(now - 500), ledger(now - 500)],
    {
      by: 'actor scheduler',
      state: 'queued',
      says: expect.stringMatching(/queue for room on an engine \(e0: 1 running/),
    },
  ],
  [
    'a turn that needs newer weights waits for the engine that lacks them',
    [
      ...turnOpen.map(m => (m.type === 'rollout.requested' ? { ...m, minVersion: policyVersion(3) } : m)),
      status(now - 500),
    ],
    { by: 'engine e0', state: 'working' },
  ],
  [
    'a turn waits for the trainer while engines sleep for it',
    [...turnOpen, status(now - 500), { type: 'engine.slept', at: now - 800, engine: e0 }],
    { by: 'actor trainer', state: 'working' },
  ],
  [
    'a finished turn after which nothing was asked waits for the owner of the partition',
    [...turnOpen, completed(generate, 'no call', { at: now - 20_000 })],
    { for: 'next action', by: 'actor owner', since: now - 20_000 },
  ],
])('%s', (_, messages, expected) => {
  expect(owed(why(messages))).toMatchObject(expected)
})

test.each<[readonly EngineId[], string | RegExp]>([
  [[e1], 'the turn needs policy version 1; engine e1 has policy version 0'],
  [[], /^the turn waits in the queue for room on an engine \(e0: /],
])('a turn that needs newer weights, and an engine that lacks them: accepting %p', (accepting, says) => {
  const joined = begun.find(({ type }) => type === 'engine.joined') as EngineJoined
  const found = why([
    ...begun.map(m => (m.type === 'rollout.requested' ? { ...m, minVersion: policyVersion(1) } : m)),
    { ...joined, engine: e1 },
    { type: 'weights.applied', at: now - 58_000, engine: e1, version: policyVersion(0), digest: 'd' },
    { type: 'weights.applied', at: now - 42_000, engine: e0, version: policyVersion(1), digest: 'd' },
    ask,
    generate,
    ...[e0, e1].map(engine => ({ ...status(now - 500), engine })),
    ...[e0, ...accepting].map(engine => ({ ...ledger(now - 500), engine }) as Message),
  ])
  const chain = found.waits[0]!.oldest.chain
  expect(chain.find(({ name }) => name === 'scheduler')?.says).toEqual(
    typeof says === 'string' ? says : expect.stringMatching(says),
  )
})

describe('a tool call', () => {
  const turn = completed(generate, toolCall('print(4)'), { at: now - 35_000 })
  const place = { trajectory: id, turn: 0, call: 0, attempt: 0, tool: toolName, arguments: {}, epoch: epoch(0) }
  const execute: Message = { ...place, type: 'tool.execute', timeoutMs: 4000, responseChars: 9 }
  const open: readonly Message[] = [...turnOpen, turn, { ...place, type: 'tool.asked', at: now - 34_000 }, execute]
  const given: Message = { type: 'tools.assign', executor: box, incarnation: 'i', calls: [execute as never] }
  const slots: OfferSlots = {
    type: 'executor.slots',
    executor: box,
    incarnation: 'i',
    slots: 2,
    tools: [toolName],
    held: [`${id}#0#0#0`],
  }
  /** Entries in which the executor's report is `age` ms old. */
  function at(messages: readonly Message[], age: number, standing = 'running') {
    const entries = entriesOf(messages).map(e => (e.message === slots ? { ...e, timestamp: now - age } : e))
    const standings = new Map([['t', standing as 'running']])
    return explain(gatherEvidence(entries).evidence(), { kind: 'trajectory', trajectory: id }, { now, standings })
  }

  test('that its executor holds is working; one whose executor stopped reporting is silent', () => {
    const chain = ['tool.asked', 'tool.execute', 'tools.assign', 'box']
    const working = owed(at([...open, given, slots], 500))
    expect(working).toMatchObject({
      for: 'tool call',
      by: 'executor box',
      state: 'working',
      chain,
      says: '1 of 2 slots in use; it holds the call',
    })
    expect(owed(at([...open, given, slots], 20_000))).toMatchObject({ by: 'executor box', state: 'silent', chain })
  })

  test('for which no executor offers the tool, or has a slot, is queued; a dead executor is gone', () => {
    expect(owed(at(open, 0))).toMatchObject({
      by: 'actor dispatcher',
      state: 'queued',
      says: `no executor offers the tool ${toolName}`,
    })
    expect(owed(at([...open, slots], 500))).toMatchObject({ by: 'actor dispatcher', state: 'queued' })
    expect(owed(at([...open, given, slots], 500, 'gone'))).toMatchObject({ by: 'executor box', state: 'gone' })
  })
})

test('a run whose process is gone says so first, and what was open is lost', () => {
  const found = why([...turnOpen, assign, status(now - 90_000)], { kind: 'run' }, 'gone')
  expect({ run: found.run, outcome: found.outcome.kind }).toEqual({ run: 'crashed', outcome: 'lost' })
  expect(owed(found)).toMatchObject({ for: 'process', by: 'process process 7 on here', state: 'gone' })
  expect(found.waits.map(({ oldest }) => oldest.for)).toEqual(['process', 'generation'])
  expect(why([...turnOpen, assign], { kind: 'trajectory', trajectory: id }, 'gone').outcome.kind).toBe('lost')
})

test('a run that a full disk pauses waits for the disk; once facts follow, it does not', () => {
  const message = 'the run pauses: /data/x has no space left for the log; 3 MiB are needed and 0 KiB are free.'
  const full: Fact = { type: 'alarm.raised', at: now - 38_000, alarm: 'disk-full', message }
  const paused = why([...turnOpen, assign, status(now - 90_000), full], { kind: 'run' })
  expect(owed(paused)).toMatchObject({ for: 'disk space', by: 'disk /data/x', state: 'paused', since: now - 38_000 })
  const later = why([...turnOpen, assign, full, completed(generate, 'x', { at: now - 10_000 })], { kind: 'run' })
  expect(later.waits.map(({ oldest }) => oldest.for)).not.toContain('disk space')
})

test('a started step waits for the trainer; a run without weights for the cold start', () => {
  const step: Fact = {
    ...{ type: 'step.started', at: now - 30_000, step: 1, epoch: epoch(0), baseVersion: policyVersion(0) },
    ...{ baseCheckpoint: 'c', trajectories: [id] },
  }
  expect(owed(why([...begun, step], { kind: 'run' }))).toMatchObject({ for: 'next action' })
  const found = why([...begun, step], { kind: 'run' })
  expect(found.waits.map(({ oldest }) => [oldest.for, owedBy(oldest).name])).toContainEqual([
    'optimizer step',
    'trainer',
  ])
  const cold: Fact = { type: 'learner.claimed', at: now - 30_000, owner: 'l' }
  expect(owed(why([cold, actor('root/learning/trainer')], { kind: 'run' }))).toMatchObject({
    for: 'cold start',
    by: 'actor trainer',
  })
  const progress = { type: 'stage.progressed', stage: 'cold-start', done: 0.417, loss: 0.25, leftSeconds: 327 } as const
  const half = why([cold, { ...progress, at: now - 5000 }, actor('root/learning/trainer')], { kind: 'run' })
  expect(half.waits[0]!.oldest.chain.map(({ says }) => says)).toContain('41 % done, loss 0.250, about 5 min left then')
  // A report of the learner before this one says nothing of the cold start that begins anew.
  const anew = why([{ ...progress, at: now - 60_000 }, cold, actor('root/learning/trainer')], { kind: 'run' })
  expect(anew.waits[0]!.oldest.chain.map(({ says }) => says).join()).not.toContain('% done')
})

test('failed, timed out and refused rollouts say by whom, and none has a reward', () => {
  const lost = { tokens: new Int32Array(), logprobs: new Float32Array(), segments: [], engine: e0, turn: 0, attempt: 0 }
  const end = (reason: string): Fact => ({
    ...{ type: 'rollout.finished', at: now, trajectory: id, epoch: epoch(0), outcome: 'failed', reason, turns: 0 },
    ...{ sampledTokens: 0, toolCalls: 0, toolErrors: 0, answerTags: 0 },
  })
  const broke = (reason: 'too-long' | 'engine-error'): Fact => ({
    ...{ type: 'turn.interrupted', at: now, trajectory: id, reason, error: 'no room', ...lost },
  })
  const finished: Fact = { ...(end('stop') as Extract<Fact, { type: 'rollout.finished' }>), outcome: 'answered' }
  const unjudged = (how: string): Fact => ({
    type: 'reward.failed',
    at: now,
    trajectory: id,
    attempt: 0,
    how,
    why: 'w',
  })
  const done = [...turnOpen, completed(generate, 'x'), finished]
  expect(why([...turnOpen, broke('too-long'), end('engine: no room')]).outcome).toEqual({
    kind: 'refused',
    by: 'engine e0',
    why: 'engine: no room',
  })
  expect(why([...turnOpen, broke('engine-error'), end('engine: no room')]).outcome).toMatchObject({
    kind: 'failed',
    by: 'engine e0',
  })
  expect(why([...turnOpen, end('group-closed')]).outcome).toMatchObject({
    kind: 'timed-out',
    by: 'deadline of the group',
  })
  expect(why([...done, unjudged('timeout')]).outcome).toEqual({ kind: 'timed-out', by: 'verifier', why: 'timeout: w' })
  expect(why([...done, unjudged('raised')]).outcome).toEqual({ kind: 'failed', by: 'verifier', why: 'raised: w' })
  expect(owed(why(done))).toMatchObject({ for: 'reward', by: 'actor verifier' })
})

test('at every record of a recorded history, what is open has a chain that ends with who owes it, and what ended has none', () => {
  const { records, run } = quickstartHistory()
  const next = new Map<string, number>()
  const { take, evidence } = gatherEvidence()
  const around = { now, standings: new Map() }
  let [open, over] = [0, 0]
  for (const { message, topic, partition } of records) {
    const place = `${topic}#${partition}`
    const offset = next.get(place) ?? 0
    next.set(place, offset + 1)
    take({ message, topic, partition, offset, timestamp: 0 })
    if (!('trajectory' in message) || !message.type.includes('.')) continue
    const seen = evidence()
    const one = seen.rollouts.get(message.trajectory)
    if (one === undefined) continue
    const waits = rolloutWaits(seen, answerers(seen, around), message.trajectory)
    const isOver = one.reward !== null || one.rollout.ending?.outcome === 'failed'
    if (isOver && one.rollout.phase === 'finished') over += waits.length === 0 ? 1 : Number.NaN
    else if (
      waits.every(({ chain }) => chain.length > 1 && chain[0]!.kind === 'fact' && chain.at(-1)!.state !== undefined)
    )
      open += waits.length > 0 ? 1 : Number.NaN
    else open = Number.NaN
  }
  expect(run).toBe('history')
  expect(open).toBeGreaterThan(300)
  expect(over).toBeGreaterThan(60)
})

describe('the command', () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-why-'))
  afterAll(() => rmSync(directory, { recursive: true, force: true }))

  test('says how a run, a group, a trajectory and a turn ended, and what a cut-off one waits for', async () => {
    const history = quickstartHistory()
    await saveHistory(directory, history)
    const times = history.records.flatMap(({ message: m }) => ('at' in m ? m.at : []))
    const middle = (Math.min(...times) + Math.max(...times)) / 2
    const cut = changed(history, m => (!('at' in m) || m.at <= middle ? m : null))
    await saveHistory(join(directory, 'cut'), cut)
    const ask = (at: string, ...args: string[]) =>
      troupe(['why', history.run, ...args, '--json', '--bus', `lmdb:${at}`]).done
    const whole = JSON.parse((await ask(directory)).stdout)
    expect(whole).toMatchObject({ type: 'why', run: 'finished', outcome: { kind: 'answered' }, waits: [] })
    const one = JSON.parse((await ask(directory, 's0001.0000')).stdout)
    expect(one.members.map((m: { outcome: { kind: string } }) => m.outcome.kind)).toEqual(Array(8).fill('scored'))
    const { stdout, code } = await ask(join(directory, 'cut'))
    const found = JSON.parse(stdout)
    expect(found.run).toBe('unknown')
    expect(found.waits.length).toBeGreaterThan(0)
    expect({ code, chained: found.waits.every((w: { chain: unknown[] }) => w.chain.length > 1) }).toEqual({
      code: expect.any(Number),
      chained: true,
    })
    const missing = await ask(directory, 's9')
    expect({ code: missing.code, said: missing.stderr.includes('replay.no_match') }).toEqual({ code: 2, said: true })
  }, 60_000)
})
