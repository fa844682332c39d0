/** `troupe control`: orders reach the run whose log they cannot write to, hold beyond a crash, and do what they say. */
import { mkdtempSync, rmSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { curriculum } from '../../../../actors/curriculum/curriculum'
import { learner } from '../../../../actors/learning/learner'
import { heedOrders } from '../../../../actors/run/control/heedOrders'
import { takeOrders } from '../../../../actors/run/control/takeOrders'
import type { ActorStatus, ControlRun } from '../../../../messages/commands'
import type { ControlObeyed, ControlOrder, Fact } from '../../../../messages/facts'
import { engineId, epoch, type GroupId, policyVersion, runId } from '../../../../messages/ids'
import { memoryBlobs } from '../../../../runtime/bus/blobs'
import { openLmdbBus } from '../../../../runtime/bus/lmdb/lmdbBus'
import { openMemoryBus } from '../../../../runtime/bus/memory/memoryBus'
import { waitingOrders, writeOrder } from '../../../../runtime/control/orderFiles'
import { diskPause } from '../../../../runtime/disk/diskPause'
import { manualEffects, systemEffects } from '../../../../runtime/effects'
import type { Journal } from '../../../../runtime/journal/journal'
import { openJournal } from '../../../../runtime/journal/openJournal'
import { createLog } from '../../../../runtime/log'
import { runDirectory } from '../../../../runtime/runDirectory'
import { everything } from '../../../support/audit'
import { troupe } from '../../../support/cli'
import { ofType, plan, published } from '../../../support/facts'
import { drawAt } from '../../../support/hashModel'
import { steppedEngine, turnOf } from '../../../support/steppedEngines'
import { steppedRun } from '../../../support/steppedRun'
import { until } from '../../../support/until'
import { world } from '../../../support/world'

const log = createLog('control', { level: 'silent' })
const directory = mkdtempSync(join(tmpdir(), 'troupe-control-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const cleanups: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

const obeyed = (order: ControlOrder, reason = ''): ControlObeyed => ({
  ...{ type: 'control.obeyed', at: 0, id: `${order}${reason}`, offset: 0, order, reason },
})
const ordered = (order: ControlOrder, id: string, at = 1000): ControlRun => ({
  ...{ type: 'run.control', at, id, order, reason: 'why' },
})

describe('the curriculum', () => {
  const drawn = (step: number, groups: readonly string[]): Fact => ({
    ...{
      type: 'curriculum.advanced',
      at: 0,
      step,
      purpose: 'train',
      groups: groups as GroupId[],
      cursor: 2,
      order: 8 * step,
    },
  })
  const over = (step: number): Fact[] => [
    published(step),
    { type: 'step.completed', at: 0, step, epoch: epoch(0), version: policyVersion(step), metrics: {} },
  ]

  test('draws nothing while a pause holds, and what was due once it is taken back', () => {
    const { append, requests } = world(curriculum(plan))
    append(obeyed('pause'), published(0))
    expect(requests).toEqual([])
    append(obeyed('resume'))
    expect(requests).toMatchObject([{ purpose: 'train', step: 1 }])
  })

  test('drained, it replaces rejected groups of the step that is drawn, draws no other step, and ends the run', () => {
    const { append, requests, takeRequest, log: facts } = world(curriculum({ ...plan, maxStaleness: 0 }))
    append(published(0))
    takeRequest(0)
    append(drawn(1, ['s0001.0000', 's0001.0001']), obeyed('drain', 'enough'))
    expect(requests).toEqual([])
    const reject = { at: 0, epoch: epoch(0), step: 1, reason: 'equal-rewards', rewarded: 4, meanReward: 0 } as const
    append({ type: 'group.rejected', group: 's0001.0000' as GroupId, ...reject })
    expect(requests).toMatchObject([{ purpose: 'train', step: 1, groups: ['s0001.0002'] }])
    takeRequest(0)
    append(drawn(1, ['s0001.0002']))
    expect(ofType(facts, 'run.finished')).toEqual([])
    append(...over(1))
    expect(requests).toEqual([])
    expect(ofType(facts, 'run.finished')).toMatchObject([{ outcome: 'stopped', reason: 'drained: enough', steps: 1 }])
    append({ type: 'run.resumed', at: 0, run: runId('r'), recipeDigest: '', codeDigest: '', tokenizerDigest: '' })
    expect(requests).toMatchObject([{ purpose: 'train', step: 2 }])
  })

  test('an order without a reason ends the run without one', () => {
    const { append, log: facts } = world(curriculum(plan))
    append(published(0), obeyed('drain'))
    expect(ofType(facts, 'run.finished')).toMatchObject([{ outcome: 'stopped', reason: 'drained' }])
  })

  test('aborted, it ends the run at once', () => {
    const { append, takeRequest, log: facts } = world(curriculum(plan))
    append(published(0))
    takeRequest(0)
    append(drawn(1, ['s0001.0000']), obeyed('abort', 'wrong data'))
    expect(ofType(facts, 'run.finished')).toMatchObject([{ outcome: 'stopped', reason: 'aborted: wrong data' }])
  })
})

test('no step begins while a pause holds; a drain takes the pause back, since a paused run would never be drained', () => {
  const { append, log: facts } = world(learner({ groupsPerStep: 1, refillShare: 0, steps: 2 }))
  const group = 's0001.0000' as GroupId
  const chosen = { selection: 'paper', generator: 'g', seed: 1, whole: false, dropped: [] }
  const kept = [{ member: 0, reward: 1, advantage: 1, penalty: 0 }]
  append(
    obeyed('pause'),
    published(0),
    { type: 'checkpoint.saved', at: 0, step: 0, version: policyVersion(0), name: 'c', digest: 'd' },
    { type: 'curriculum.advanced', at: 0, step: 1, purpose: 'train', groups: [group], cursor: 1, order: 4 },
    { type: 'group.selected', at: 0, group, epoch: epoch(0), step: 1, ...chosen, kept },
  )
  expect(ofType(facts, 'step.started')).toEqual([])
  append(obeyed('drain'))
  expect(ofType(facts, 'step.started')).toHaveLength(1)
})

test('a paused run generates nothing more, and when it goes on it ends with every rollout, as if nothing had been', async () => {
  const engine = steppedEngine(engineId('e0'), 16, seed => turnOf(seed, 5 + Math.floor(60 * drawAt(seed, 0))))
  const counts: number[] = []
  const ended = await steppedRun({
    ...{ engines: [engine], partitions: 1, groupSize: 8, trainingSteps: 10 },
    selection: { variant: 'none', keep: 8, rejectEqual: false },
    plan: { steps: 2, groupsPerStep: 3, refillShare: 0, maxStaleness: 0 },
    limits: {
      contextTokens: 2048,
      responseTokens: 600,
      turns: 4,
      callsPerTurn: 1,
      toolTimeoutMs: 1000,
      toolResponseChars: 100,
    },
    grader: async () => ({ reward: 1, answer: '', how: 'test' }),
    async onStep(n, { troupe: { journal } }) {
      if (n === 30) await journal.append([obeyed('pause')])
      if (n === 200 || n === 400) {
        const turns = (await everything(journal, 'trajectories', 0)).filter(e => e.message.type === 'turn.completed')
        counts.push(turns.length)
      }
      if (n === 400) await journal.append([obeyed('resume')])
    },
  })
  expect(counts[1]).toBe(counts[0])
  expect(counts[0]).toBeLessThan((await ended.factsOf('trajectories', 'turn.completed')).length)
  const ends = await ended.factsOf('trajectories', 'rollout.finished')
  expect(ends.map(({ outcome }) => outcome)).not.toContain('failed')
  expect(ends).toHaveLength(48)
  await ended.close()
}, 60_000)

async function journalInMemory(): Promise<Journal> {
  const bus = openMemoryBus()
  cleanups.push(() => bus.close())
  const journal = openJournal(bus, memoryBlobs(), runId('r'))
  await journal.create(1)
  return journal
}

async function taking(journal: Journal, said: readonly Fact[], at?: string): Promise<() => Promise<void>> {
  return takeOrders({
    ...{ journal, fx: systemEffects, log, learnerEpoch: epoch(3), said, directory: at },
    ...{ mayAct: async () => true, onError: error => Promise.reject(error) },
  })
}
const taken = async (journal: Journal) =>
  ofType(
    (await everything(journal, 'runs', 0)).map(e => e.message),
    'control.obeyed',
  )

test('an order is obeyed once, also by the next process; a drain from before the run was begun is out of date', async () => {
  const journal = await journalInMemory()
  const begun: Fact = {
    type: 'run.resumed',
    at: 500,
    run: runId('r'),
    recipeDigest: '',
    codeDigest: '',
    tokenizerDigest: '',
  }
  await journal.append([ordered('drain', 'old', 400), ordered('pause', 'a', 400)])
  const close = await taking(journal, [begun])
  await journal.append([ordered('pause', 'a'), ordered('resume', 'b')])
  await until(async () => (await taken(journal)).length === 2)
  await close()
  const before = await taken(journal)
  expect(before).toMatchObject([
    { order: 'pause', id: 'a', offset: 1, learnerEpoch: 3 },
    { order: 'resume', id: 'b', offset: 3 },
  ])
  cleanups.push(await taking(journal, [begun, ...before]))
  await journal.append([ordered('resume', 'b'), ordered('abort', 'c')])
  await until(async () => (await taken(journal)).length === 3)
  expect((await taken(journal)).map(({ id }) => id)).toEqual(['a', 'b', 'c'])
})

test('an order file becomes a command and goes; a file that holds no order is left alone', async () => {
  const journal = await journalInMemory()
  const at = join(directory, 'files')
  await writeOrder(at, ordered('pause', 'x'))
  await writeOrder(at, { ...ordered('pause', 'y'), order: 'halt' } as never)
  cleanups.push(await taking(journal, [], at))
  await until(async () => (await taken(journal)).length === 1)
  expect(await taken(journal)).toMatchObject([{ order: 'pause', id: 'x', reason: 'why' }])
  await until(async () => (await waitingOrders(at)).length === 0)
})

test('files that hold no order take no place of those that do', async () => {
  const at = join(directory, 'many')
  for (let n = 0; n < 70; n++) await writeOrder(at, { ...ordered('pause', `no-${n}`), at: n, order: 'halt' } as never)
  for (let n = 0; n < 70; n++) await writeOrder(at, { ...ordered('pause', `${n}`), at: 1000 + n })
  const waiting = await waitingOrders(at)
  expect(waiting.map(({ order }) => order.id)).toEqual(Array.from({ length: 64 }, (_, n) => `${n}`))
})

test('while a pause holds the clock of every process stands still, of one that joins late too', async () => {
  const journal = await journalInMemory()
  await journal.append([obeyed('pause')])
  const outer = manualEffects(0)
  const disk = diskPause({ fx: outer, log })
  const orders = await heedOrders(journal, systemEffects, disk, () => {})
  cleanups.push(() => orders.close())
  const stands = () => {
    const before = disk.fx.elapsed()
    outer.advance(1000)
    return disk.fx.elapsed() === before
  }
  await until(async () => stands())
  expect(disk.isPaused()).toBe(false) // the log can be written
  await journal.append([obeyed('resume')])
  await until(async () => !stands())
  expect(orders.isAborted()).toBe(false)
  await journal.append([obeyed('abort')])
  await until(async () => orders.isAborted())
})

describe('the command', () => {
  const files = runDirectory(directory, runId('r'))
  const digests = { recipeDigest: '', codeDigest: '', tokenizerDigest: '' }
  const status = (pid: number): ActorStatus => ({
    ...{ type: 'actor.status', at: 10, actor: 'root', kind: 'supervisor', state: 'up', restarts: 0, tree: `t${pid}` },
    ...{ host: hostname(), pid },
  })
  const control = (...args: string[]) => troupe(['control', 'r', ...args, '--bus', `lmdb:${directory}`]).done

  test('reaches the run on lmdb that lives; `why` and `ls` say that it is paused, and the next process knows', async () => {
    const bus = await openLmdbBus({ directory: files.log, mode: 'write' })
    const journal = openJournal(bus, memoryBlobs(), runId('r'))
    await journal.create(1)
    const started = {
      type: 'run.started',
      at: 0,
      run: runId('r'),
      recipe: { name: 'quickstart' },
      ...digests,
      seed: 1,
    } as const
    await journal.append([{ ...started, versions: {}, partitions: { trajectories: 1 } }, status(process.pid)])
    const close = await taking(journal, [], files.root)
    const sent = await control('pause', '--reason', 'the GPU is\u001b[2J needed')
    expect(sent).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^run r is paused: .*to continue: npx troupe control r resume/),
    })
    const why = await troupe(['why', 'r', '--json', '--bus', `lmdb:${directory}`]).done
    expect(why.code).toBe(1)
    expect(JSON.parse(why.stdout)).toMatchObject({
      waits: [{ for: 'order to resume', state: 'paused', owedBy: { kind: 'person' } }],
      next: [expect.stringMatching(/^troupe control r resume/)],
    })
    const ls = await troupe(['replay', 'ls', '--run', 'r', '--bus', `lmdb:${directory}`]).done
    expect(ls.stderr).toMatch(/run r is paused since .* \(the GPU is\\u001b\[2J needed\); to continue/)
    await close()
    await journal.append([status(2 ** 22 + 1)])
    await bus.close()
  }, 60_000)

  test('refuses to drain a run that is over or whose process is gone, by name', async () => {
    const bus = await openLmdbBus({ directory: files.log, mode: 'write' })
    const journal = openJournal(bus, memoryBlobs(), runId('r'))
    await journal.append([
      { type: 'run.resumed', at: 5, run: runId('r'), ...digests },
      { ...status(process.pid), state: 'stopped' },
    ])
    expect(await control('drain')).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/no process of run 'r' lives/),
    })
    expect(await control('resume')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/the order takes effect when the run is resumed/),
    })
    await journal.append([
      { type: 'run.finished', at: 6, run: runId('r'), outcome: 'done', reason: '', steps: 0, summary: {} },
    ])
    expect(await control('pause')).toMatchObject({ code: 2, stderr: expect.stringMatching(/run 'r' is over/) })
    await bus.close()
  }, 60_000)
})
