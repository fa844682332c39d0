/** Writes to a full disk wait, once said, and go on: nothing is lost, and no deadline passes meanwhile. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openFileBlobs } from '../../../runtime/bus/blobs'
import type { Bus } from '../../../runtime/bus/bus'
import { openMemoryBus } from '../../../runtime/bus/memory/memoryBus'
import { pausingBlobs, pausingBus } from '../../../runtime/bus/pausing'
import { diskPause, type Pause } from '../../../runtime/disk/diskPause'
import { manualEffects } from '../../../runtime/effects'
import { openTroupe } from '../../../runtime/embed'
import { asError, TroupeError } from '../../../runtime/errors'
import { createLog } from '../../../runtime/log'
import { until } from '../../support/until'

const mib = 1024 * 1024
const log = createLog('test', { level: 'silent' })
const full = () =>
  new TroupeError('bus.disk_full', { boundary: 'bus', retriable: true, message: 'the disk has no space left' })
const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'done',
    thrown => (thrown as { code?: string }).code ?? asError(thrown).message,
  )

/** A disk of 40 MiB, of which 1 MiB is kept in reserve, and a pause that looks at it every ms. */
function rig(freeMib: number) {
  const fx = manualEffects()
  const disk = { freeBytes: freeMib * mib, bytes: 40 * mib }
  const pauses: Pause[] = []
  const pause = diskPause({ fx, log, spaceOf: () => ({ ...disk }), lookEveryMs: 1 })
  pause.onPause(one => pauses.push(one))
  return { fx, disk, pauses, pause }
}
const need = { what: 'the log', directory: '/d', bytes: mib, stopsClock: true }
const later = (ms = 20) => new Promise(resolve => setTimeout(resolve, ms))

test('a write waits until it has room beside the reserve; all that wait for the same are said as one pause', async () => {
  const { disk, pauses, pause } = rig(1.5)
  const order: number[] = []
  const writes = [1, 2, 3].map(n => pause.attempt(need, async () => order.push(n)))
  await later()
  expect(order).toEqual([])
  expect(pause.isPaused()).toBe(true)
  expect(pauses).toEqual([{ what: 'the log', directory: '/d', needBytes: 3 * mib, freeBytes: 1.5 * mib }])
  disk.freeBytes = 2.5 * mib // enough to write, not to go on: the next write would stop again
  await later()
  expect(order).toEqual([])
  disk.freeBytes = 3 * mib
  await Promise.all(writes)
  expect(order).toEqual([1, 2, 3])
  expect(pause.isPaused()).toBe(false)
})

test('the clock stands still while the log cannot be written, and not while a checkpoint waits', async () => {
  const { fx, disk, pause } = rig(0)
  fx.advance(1000)
  const checkpoint = pause.room({ ...need, what: 'a checkpoint', stopsClock: false })
  fx.advance(50)
  expect(pause.fx.elapsed()).toBe(1050)
  const append = pause.attempt(need, async () => {})
  fx.advance(3_600_000)
  expect(pause.fx.elapsed()).toBe(1050)
  expect(pause.fx.now()).toBe(3_601_050)
  disk.freeBytes = 20 * mib
  await Promise.all([append, checkpoint])
  fx.advance(7)
  expect(pause.fx.elapsed()).toBe(1057)
})

test('a write that fails although there seemed to be room is made again, whichever error says that the disk is full', async () => {
  const { pauses, pause } = rig(20)
  for (const error of [full(), Object.assign(new Error('no space'), { code: 'ENOSPC' })]) {
    let tries = 0
    const write = async () => {
      if (++tries < 4) throw error
      return tries
    }
    expect(await pause.attempt(need, write)).toBe(4)
  }
  expect(pauses).toHaveLength(2)
  expect(await codeOf(pause.attempt(need, () => Promise.reject(new Error('other'))))).toBe('other')
})

test('a file at its size limit (EFBIG) is no full disk: the write fails at once, and nothing pauses', async () => {
  const { pauses, pause } = rig(20)
  const tooLarge = Object.assign(new Error('file too large'), { code: 'EFBIG' })
  expect(await codeOf(pause.attempt(need, () => Promise.reject(tooLarge)))).toBe('EFBIG')
  expect(pauses).toEqual([])
})

test('where the free space does not show the shortage (a quota), the attempts at a write become fewer', async () => {
  const { pause } = rig(20)
  let tries = 0
  const writing = pause.attempt(need, async () => {
    tries++
    throw Object.assign(new Error('quota'), { code: 'EDQUOT' })
  })
  await later(200) // looks are 1 ms apart: without a backoff that makes over 100 attempts
  expect(tries).toBeGreaterThan(4)
  expect(tries).toBeLessThan(15)
  pause.close()
  expect(await codeOf(writing)).toBe('EDQUOT')
})

test('a stop ends the wait for disk space of an embedding that is being opened', async () => {
  const inner = openMemoryBus()
  const createTopics = () => Promise.reject(full())
  const stop = new AbortController()
  const bus: Bus = { ...inner, directory: '/tmp', createTopics }
  const opening = codeOf(openTroupe({ bus, run: 'r', log, stop: stop.signal }))
  expect(await Promise.race([opening, later(50)])).toBeUndefined()
  stop.abort()
  expect(await opening).toBe('bus.disk_full')
  await inner.close()
})

test('after close nothing waits: what waited fails by the name of the full disk, with path, need and free space', async () => {
  const { pause } = rig(0)
  const waiting = pause.room({ ...need, directory: '/proc/none' })
  const retrying = rig(20)
  const failing = retrying.pause.attempt(need, () => Promise.reject(full()))
  await later()
  pause.close()
  retrying.pause.close()
  await expect(waiting).rejects.toMatchObject({
    code: 'bus.disk_full',
    message: expect.stringMatching(/\/proc\/none: it needs 1\.0 MiB/),
  })
  expect(await codeOf(failing)).toBe('bus.disk_full')
  expect(await codeOf(pause.room(need))).toBe('bus.disk_full')
})

test('appends to a log on disk wait, in the order in which they came; a bus without a directory is not touched', async () => {
  const { disk, pause } = rig(0)
  const inner = openMemoryBus()
  expect(pausingBus(inner, pause)).toBe(inner)
  const bus: Bus = pausingBus({ ...inner, directory: '/d' }, pause)
  await inner.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
  const appended = ['a', 'b', 'c'].map(key => bus.append([{ topic: 't', key, headers: {}, value: Buffer.from(key) }]))
  await later()
  expect((await bus.offsets('t', 0)).next).toBe(0)
  disk.freeBytes = 20 * mib
  await Promise.all(appended)
  expect((await bus.read('t', 0, 0)).map(({ key }) => key)).toEqual(['a', 'b', 'c'])
  await bus.close()
})

test('blobs wait for room as the log does, on Kafka too, where their store alone is on this disk', async () => {
  const { disk, pauses, pause } = rig(0)
  const directory = mkdtempSync(join(tmpdir(), 'troupe-pause-'))
  const blobs = pausingBlobs(await openFileBlobs(directory), pause)
  let stored: string | undefined
  const storing = blobs.put(Buffer.from('large')).then(({ sha256 }) => (stored = sha256))
  await later()
  expect([stored, pause.isPaused(), pauses[0]?.what]).toEqual([undefined, true, 'blobs'])
  disk.freeBytes = 20 * mib
  expect(Buffer.from(await blobs.get(await storing)).toString()).toBe('large')
  rmSync(directory, { recursive: true })
})

test('a look at the disk serves many small writes, but not more than a quarter of the reserve', async () => {
  const disk = { freeBytes: 20 * mib, bytes: 40 * mib }
  let looks = 0
  const spaceOf = () => {
    looks++
    return disk
  }
  const pause = diskPause({ fx: manualEffects(), log, spaceOf, lookEveryMs: 1 })
  for (let i = 0; i < 200; i++) await pause.room({ ...need, bytes: 1024 })
  expect(looks).toBeLessThan(20)
  disk.freeBytes = 0
  let isOver = false
  const waits = (async () => {
    for (let i = 0; i < 300; i++) await pause.room({ ...need, bytes: 1024 })
    isOver = true
  })()
  await until(() => pause.isPaused())
  expect(isOver).toBe(false)
  disk.freeBytes = 20 * mib
  await waits
})
