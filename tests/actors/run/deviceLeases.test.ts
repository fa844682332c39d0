/** Leases of GPUs: who waits for whom, and what a child's process sees. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { deviceLeases, type LeasedChild } from '../../../actors/run/deviceLeases'
import { leased } from '../../../actors/run/leased'
import { startInference } from '../../../actors/run/roles/inference'
import { openRunScope } from '../../../actors/run/roles/scope'
import type { RunOptions } from '../../../actors/run/run'
import { visibleDevices, visibleVariable } from '../../../backends/visibleDevices'
import { recipeSchema } from '../../../config'
import type { DevicePlan } from '../../../config/devicePlan'
import type { ActorStatus } from '../../../messages/commands'
import { runId } from '../../../messages/ids'
import { memoryBlobs } from '../../../runtime/bus/blobs'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { systemEffects } from '../../../runtime/effects'
import { createLog } from '../../../runtime/log'
import { resolveConfig } from '../../../runtime/settings/resolveConfig'
import { makeTinyModel } from '../../support/tinyModel'
import { until } from '../../support/until'

const engine = (index: number): LeasedChild => ({ name: `e-${index}`, group: 'engines', index })
const trainer: LeasedChild = { name: 'trainer', group: 'trainer' }
const never = new AbortController().signal
const opened = (plan: DevicePlan, devices = ['5', '7']) =>
  deviceLeases({ plan, devices, variable: 'CUDA_VISIBLE_DEVICES' })
const isSettled = async (work: Promise<unknown>) => {
  let settled = false
  void work.then(() => (settled = true), () => {}) // biome-ignore format: one thing
  await new Promise(setImmediate)
  return settled
}

test('a child sees its own GPUs, by the names that this process has for them', async () => {
  const leases = opened({ kind: 'split', engines: [[1]], trainer: [0] })
  expect((await leases.take(engine(0), never)).env).toEqual({ CUDA_VISIBLE_DEVICES: '7' })
  expect((await leases.take(trainer, never)).env).toEqual({ CUDA_VISIBLE_DEVICES: '5' })
})

test('colocated: the trainer waits until every engine on its GPUs sleeps or is gone, and an engine until it sleeps', async () => {
  const leases = opened({ kind: 'colocated', engines: [[0], [1]], trainer: [0, 1] })
  const [one, two] = [await leases.take(engine(0), never), await leases.take(engine(1), never)]
  const taken = leases.take(trainer, never)
  one.sleep()
  expect(await isSettled(taken)).toBe(false)
  two.release()
  const third = await taken
  const again = leases.take(engine(1), never)
  const woken = one.wake(never)
  expect([await isSettled(again), await isSettled(woken)]).toEqual([false, false])
  third.sleep()
  await Promise.all([again, woken])
  expect(await isSettled(third.wake(never))).toBe(false)
})

test('colocated without GPUs: engines and trainer take turns too', async () => {
  const leases = opened({ kind: 'colocated', engines: [[], []], trainer: [] }, [])
  const [one, two] = [await leases.take(engine(0), never), await leases.take(engine(1), never)]
  expect(one.env).toEqual({})
  const taken = leases.take(trainer, never)
  expect(await isSettled(taken)).toBe(false)
  one.sleep()
  two.sleep()
  await taken
})

test('colocated: a trainer that has started leaves the GPUs to engines until it is woken; if it cannot, it is ended', async () => {
  const leases = opened({ kind: 'colocated', engines: [[0]], trainer: [0] })
  const calls: string[] = []
  const process = {
    lost: new Promise<Error>(() => {}),
    sleep: async () => void calls.push('sleep'),
    wake: async () => void calls.push('wake'),
    close: async () => void calls.push('close'),
  }
  const resting = { ...trainer, startsAsleep: true }
  const started = await leased(leases, resting, never, async () => process)
  const one = await leases.take(engine(0), never)
  const woken = started.wake()
  expect(await isSettled(woken)).toBe(false)
  one.release()
  await woken
  await started.close()
  expect(calls).toEqual(['sleep', 'wake', 'close'])
  const stuck = { ...process, sleep: async () => Promise.reject(new Error('cannot move')) }
  await expect(leased(leases, resting, never, async () => stuck)).rejects.toThrow('cannot move')
  expect(calls).toEqual(['sleep', 'wake', 'close', 'close'])
  await leases.take(engine(0), never)
})

test('a lease is given again when the last one of the same child is released; who stops waiting gets none', async () => {
  const leases = opened({ kind: 'split', engines: [[0]], trainer: [1] })
  const lease = await leases.take(engine(0), never)
  const impatient = new AbortController()
  const given = leases.take(engine(0), impatient.signal)
  impatient.abort(new Error('no longer wanted'))
  await expect(given).rejects.toThrow('no longer wanted')
  const next = leases.take(engine(0), never)
  expect(await isSettled(next)).toBe(false)
  lease.release()
  lease.release()
  await next
})

test('GPUs are those that torch sees; a machine without a driver is not asked', async () => {
  expect(await visibleDevices({ TROUPE_VENV: '/nowhere' }, false)).toEqual([])
  expect(await visibleDevices({ CUDA_VISIBLE_DEVICES: '' }, true)).toEqual([])
  await expect(visibleDevices({ TROUPE_VENV: '/nowhere' }, true)).rejects.toMatchObject({ code: 'process.no_python' })
  expect(visibleVariable({ HIP_VISIBLE_DEVICES: '1' })).toBe('HIP_VISIBLE_DEVICES')
})

describe('engines of a run', () => {
  const folder = mkdtempSync(join(tmpdir(), 'troupe-leases-'))
  const modelDirectory = join(folder, 'model')
  const cleanups: (() => Promise<void>)[] = []
  beforeAll(() => makeTinyModel(modelDirectory), 120_000)
  afterAll(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup()
    rmSync(folder, { recursive: true, force: true })
  }, 60_000)

  const optionsOf = (devices: readonly string[], ...overrides: string[]) => {
    const recipe = { name: 'r', model: { from: 'directory', path: modelDirectory }, engine: { count: 2, threads: 1 } }
    const small = [
      'limits.contextTokens=64',
      'limits.responseTokens=32',
      'engine.kvTokens=256',
      'engine.maxSequences=2',
    ]
    const { value: config } = resolveConfig(recipeSchema, {
      ...{ what: 'recipe r', recipe, overrides: [...small, ...overrides] },
    })
    const bus = openMemoryBus()
    cleanups.push(() => bus.close())
    const log = createLog('test', { level: process.env.TROUPE_LOG ?? 'silent' })
    const common = { run: runId('r'), bus, blobs: memoryBlobs(), fx: systemEffects, log, learns: false }
    return { ...common, role: 'inference', config, devices } as unknown as RunOptions
  }

  /** GPUs that the engines' processes see, by pid. */
  const seen = () =>
    readdirSync('/proc').flatMap(pid => {
      try {
        const read = (name: string) => readFileSync(`/proc/${pid}/${name}`, 'utf8')
        if (!read('cmdline').includes(modelDirectory)) return []
        const gpus = /(?:^|\0)CUDA_VISIBLE_DEVICES=([^\0]*)/.exec(read('environ'))?.[1]
        return [[Number(pid), gpus] as const]
      } catch {
        return [] // not a process, or one that has ended
      }
    })

  test('each process sees the GPU of its lease, the next one of a killed engine sees the same, and the tree shows it', async () => {
    const { scope, root, journal } = await openRunScope(optionsOf(['4', '6']))
    cleanups.push(() => scope.close())
    root.status.start(journal)
    await startInference(scope, { model: { directory: modelDirectory, template: undefined }, name: 'e' })
    await until(async () => seen().length === 2, 60_000)
    const before = seen()
    expect(before.map(([, gpus]) => gpus).sort()).toEqual(['4', '6'])
    const [killed, its] = before[0]!
    process.kill(killed, 'SIGKILL')
    await until(async () => seen().filter(([pid]) => pid !== killed).length === 2, 60_000)
    expect(seen().find(([pid]) => !before.some(([old]) => old === pid))![1]).toBe(its)
    const statuses = async () =>
      (await journal.read('telemetry', 0, 0, 10_000)).map(({ message }) => message as ActorStatus)
    await until(async () => (await statuses()).some(({ actor, devices }) => actor === 'root/inference/e-1' && devices?.[0] === '6')) // biome-ignore format: one thing
  }, 180_000)

  test('a plan that does not fit is refused before anything is in the log', async () => {
    const options = optionsOf(['0'], 'hardware.plan.kind=split')
    const refused = { code: 'config.devices', message: expect.stringContaining('2 engines × 1 GPUs = 2 GPUs') }
    await expect(openRunScope(options)).rejects.toMatchObject(refused)
    expect(await options.bus.listTopics()).toEqual([])
  })
})
