/**
 * A learner's part that is claimed by one who has not its seat any more: whoever has it claims it again, and goes on. Of a process
 * that does everything, the run fails, and says why.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { claimLearning, whenReplaced } from '../../../actors/ownership/claimLearning'
import { joinRun } from '../../../actors/run/joinRun'
import { lead } from '../../../actors/run/roles/lead'
import type { Scope } from '../../../actors/run/roles/scope'
import { startRun } from '../../../actors/run/root'
import type { RunOptions } from '../../../actors/run/run'
import { runId } from '../../../messages/ids'
import { loadRecipe } from '../../../recipes/load/loadRecipe'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import type { Bus } from '../../../runtime/bus/bus'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { manualEffects, systemEffects } from '../../../runtime/effects'
import { openJournal } from '../../../runtime/journal/openJournal'
import { createLog } from '../../../runtime/log'
import { steppedEngine, turnOf } from '../../support/steppedEngines'
import { until } from '../../support/until'

const run = runId('r')
const fx = manualEffects(0)
const fail = (error: Error) => {
  throw error
}

test('a claim that comes late, from one whose seat went to another, does not silence the run', async () => {
  const inner = openMemoryBus()
  let isSeated = true
  const bus: Bus = {
    ...inner,
    async subscribe(options, handler) {
      const subscription = await inner.subscribe(options, handler)
      return { ...subscription, holds: (topic, partition) => isSeated && subscription.holds(topic, partition) }
    },
  }
  const journal = openJournal(bus, memoryBlobs(), run)
  await journal.create(1)
  const claims: number[] = []
  let ended = 0
  const options = { bus, run, log: createLog('test', { level: 'silent' }) } as unknown as RunOptions
  const leave = await lead(options, 'learner', fail, async (_mayAct, again) => {
    const own = await claimLearning(journal, fx)
    claims.push(own)
    const unwatch = await whenReplaced(journal, fx, own, again, fail)
    const close = async () => {
      ended++
      await unwatch()
    }
    return { close } as unknown as Scope
  })
  await until(() => claims.length === 1)
  const late = await claimLearning(journal, fx)
  await until(() => claims.length === 2)
  expect(claims[1]).toBeGreaterThan(late)
  expect(ended).toBe(1)
  // While the seat is in doubt nobody is answered with a claim of ours.
  isSeated = false
  await claimLearning(journal, fx)
  await new Promise(resolve => setTimeout(resolve, 100))
  expect(claims).toHaveLength(2)
  isSeated = true
  await until(() => claims.length === 3)
  await leave()
  expect(ended).toBe(3)
  await inner.close()
})

test('a run in one process ends with an error when another process claims it, instead of waiting for ever', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-takeover-'))
  const bus = openMemoryBus()
  const {
    recipe,
    config: { value: config },
  } = loadRecipe('quickstart', ['evaluation.problems=0'])
  const started = await startRun({
    ...{ run, recipe, config, directory, modelDirectory: join(directory, 'model'), bus },
    ...{ blobs: memoryBlobs(), resume: false, learns: false, acceptCode: true, versions: {}, fx: systemEffects },
    log: createLog('test', { level: 'silent' }),
    startEngine: async id => steppedEngine(id, 4, seed => turnOf(seed, 20)), // that never steps,
  })
  let failed: unknown
  started.finished.catch(thrown => {
    failed = thrown
  })
  try {
    const { journal } = started
    const isDrawn = async () =>
      (await journal.read('runs', 0, 0)).some(({ message }) => message.type === 'curriculum.advanced')
    await until(isDrawn, 60_000)
    await claimLearning(journal, systemEffects)
    await until(() => failed !== undefined, 20_000)
    expect(failed).toMatchObject({ code: 'bus.run_taken_over', retriable: true })
    expect(failed).toMatchObject({
      message: expect.stringContaining(`'${run}'`),
      hint: expect.stringMatching(/--resume/),
    })
  } finally {
    await started.close()
    await bus.close()
    rmSync(directory, { recursive: true, force: true })
  }
}, 180_000)

test('a learner whose seat goes to another while it prepares itself announces nothing', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-takeover-'))
  const inner = openMemoryBus()
  let revoke: () => Promise<void> = async () => {}
  const bus: Bus = {
    ...inner,
    async subscribe(options, handler) {
      const isSeat = options.group.endsWith('seat.learner')
      if (isSeat) revoke = async () => options.onRevoked?.({ topic: options.topics[0]!, partition: 0 })
      return inner.subscribe(options, handler)
    },
  }
  const {
    recipe,
    config: { value: config },
  } = loadRecipe('quickstart', ['evaluation.problems=0'])
  const journal = openJournal(bus, memoryBlobs(), run)
  const standing: string[] = []
  const joined = await joinRun({
    ...{ role: 'learner', run, recipe, config, directory, modelDirectory: join(directory, 'model'), bus },
    ...{ blobs: memoryBlobs(), resume: false, learns: false, acceptCode: true, versions: {}, fx: systemEffects },
    log: createLog('test', { level: 'silent' }),
    onStanding: one => standing.push(one),
  })
  try {
    await revoke()
    await until(() => standing.at(-1) === 'standing-by', 120_000) // it ended what it had begun
    expect((await journal.offsets('runs', 0)).next).toBe(0)
    expect(standing).toEqual(['active', 'standing-by'])
  } finally {
    await joined.close()
    await inner.close()
    rmSync(directory, { recursive: true, force: true })
  }
}, 180_000)
