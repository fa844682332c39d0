/** `troupe track --to tensorboard:DIR`: every point of a run is in the event file once, however often it is cut off or called again. */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { RunStarted } from '../../../messages/facts'
import type { TopicName } from '../../../messages/topics'
import type { Take, Want } from '../../../replay/log/partitionScan'
import { openLog, type RecordedRun } from '../../../replay/log/recordedRun'
import { type Point, type Tracker, trackRun } from '../../../replay/tracking/runPoints'
import { tensorboardTracker } from '../../../replay/tracking/tensorboard'
import { crc32c, frame, framesOf } from '../../../replay/tracking/tfRecords'
import type { BusRecord } from '../../../runtime/bus/bus'
import { TroupeError } from '../../../runtime/errors'
import { troupe } from '../../support/cli'
import { changed, quickstartHistory, saveHistory } from '../../support/histories'

const directory = mkdtempSync(join(tmpdir(), 'troupe-track-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const fileOf = (at: string, run: string) => join(at, run, `events.out.tfevents.0000000000.${run}`)
const started = { type: 'run.started', at: 1000, recipe: { name: 'r' }, versions: {} } as unknown as RunStarted
const point = (step: number): Point => ({
  key: `step/${step}`,
  step,
  at: 2000 + step,
  values: { 'train/passAt1': step / 8 },
})

const tags = ['train/passAt1', 'update/loss', 'eval/held-out/passAt1']

/** Reads scalars of a file by the documented layout, apart from the writer's code: tag, step and float of each value. */
const scalarsIn = (file: string): [string, number, number][] =>
  framesOf(readFileSync(file)).frames.flatMap(data =>
    tags.flatMap((tag): [string, number, number][] => {
      // Field 1, length-delimited: the tag. Field 2, 32 bits: the value.
      const bytes = Buffer.concat([Buffer.from([0x0a, tag.length]), Buffer.from(tag), Buffer.from([0x15])])
      const at = data.indexOf(bytes)
      return at < 0 ? [] : [[tag, stepOf(data), data.readFloatLE(at + bytes.length)]]
    }),
  )
/** The step: a varint behind the time (tag 1, 8 bytes), with the tag 0x10. */
const stepOf = (data: Buffer): number => (data[9] === 0x10 ? data[10]! : Number.NaN)

test('the checksum is CRC-32C, and frames are read up to the first that is cut off or damaged', () => {
  expect(crc32c(Buffer.from('123456789')).toString(16)).toBe('e3069283')
  const [a, b] = [frame(Buffer.from('one')), frame(Buffer.from('two'))]
  expect(framesOf(Buffer.concat([a, b]))).toMatchObject({
    frames: [Buffer.from('one'), Buffer.from('two')],
    end: a.length + b.length,
  })
  expect(framesOf(Buffer.concat([a, b.subarray(0, -1)])).frames).toHaveLength(1)
  b[13]! ^= 1
  expect(framesOf(Buffer.concat([a, b]))).toMatchObject({ frames: [Buffer.from('one')], end: a.length })
})

test('a tracker that died in the middle of a point writes it again, and nothing else twice', async () => {
  const file = fileOf(directory, 'cut')
  const write = async (points: readonly Point[]) => {
    const tracker = await tensorboardTracker(directory, 'cut')
    await tracker.begin(started)
    await tracker.keep(points)
    await tracker.close()
  }
  await write([point(1), point(2)])
  truncateSync(file, statSync(file).size - 3)
  await write([point(1), point(2), point(3)])
  appendFileSync(file, 'torn')
  await write([point(1), point(2), point(3)])
  expect(scalarsIn(file)).toEqual([1, 2, 3].map(step => ['train/passAt1', step, step / 8]))
  expect(framesOf(readFileSync(file)).frames).toHaveLength(5) // version, recipe, three points
})

/** Points that a run gives while it is read twice, the second time after more was appended. */
async function pointsOf(at: string, run: string): Promise<readonly Point[]> {
  const recorded = await openLog({ bus: `lmdb:${at}`, run })
  const kept: Point[] = []
  const tracker: Tracker = {
    begin: async () => {},
    keep: async points => void kept.push(...points),
    close: async () => {},
  }
  await trackRun(recorded, tracker, { follow: false })
  await recorded.close()
  return kept
}

test('an abort while more points wait than are read ahead loses none of those that the log has by then', async () => {
  const at = join(directory, 'aborted')
  const history = quickstartHistory()
  await saveHistory(at, history)
  const log = await openLog({ bus: `lmdb:${at}`, run: history.run })
  // The topic `runs` of this log has alarms alone, of which some come while the tracker is down.
  let alarms = 2000
  const recorded: RecordedRun = Object.assign(Object.create(log) as RecordedRun, {
    endOf: async (topic: TopicName, partition: number) => (topic === 'runs' ? alarms : log.endOf(topic, partition)),
    scan: async (topic: TopicName, take: Take, want?: Want, from?: readonly number[]) => {
      if (topic !== 'runs') return log.scan(topic, take, want, from)
      for (let offset = from?.[0] ?? 0; offset < alarms; offset++) {
        const message = { type: 'alarm.raised', at: offset, alarm: 'stalled', message: '' } as const
        take({ message, topic, partition: 0, offset, timestamp: 0 }, {} as BusRecord)
      }
      return []
    },
  })
  const abort = new AbortController()
  const kept: Point[] = []
  const tracker: Tracker = {
    begin: async () => {},
    async keep(points) {
      if (abort.signal.aborted) return void kept.push(...points)
      alarms += 10
      abort.abort()
      throw new TroupeError('tracker.down', { boundary: 'replay', retriable: true, message: 'it is down' })
    },
    close: async () => {},
  }
  await trackRun(recorded, tracker, { follow: true, everyMs: 5, signal: abort.signal })
  await log.close()
  expect(kept.filter(({ texts }) => texts !== undefined)).toHaveLength(2010)
})

test('the command gives a run from its log, and a call after more steps adds those alone', async () => {
  const history = quickstartHistory()
  const first = history.records.flatMap(({ message: m }) =>
    m.type === 'step.completed' && m.step === 1 ? [m.at] : [],
  )[0]!
  const early = join(directory, 'early')
  await saveHistory(
    early,
    changed(history, m => (!('at' in m) || m.at <= first ? m : null)),
  )
  await saveHistory(directory, history)
  const to = `tensorboard:${join(directory, 'tb')}`
  const track = (at: string) => troupe(['track', history.run, '--no-follow', '--to', to, '--bus', `lmdb:${at}`]).done
  expect((await track(early)).code).toBe(0)
  const file = fileOf(join(directory, 'tb'), history.run)
  expect(
    new Set(
      scalarsIn(file)
        .filter(([tag]) => tag === 'train/passAt1')
        .map(([, step]) => step),
    ),
  ).toEqual(new Set([1]))
  expect(await track(directory)).toMatchObject({ code: 0, stderr: expect.stringContaining('done after 3 steps') })
  const size = statSync(file).size
  expect((await track(directory)).code).toBe(0)
  expect(statSync(file).size).toBe(size)
  const points = await pointsOf(directory, history.run)
  const expected = points.flatMap(({ step, values }) =>
    tags.flatMap(tag => (tag in values ? [[tag, step, Math.fround(values[tag]!)]] : [])),
  )
  const sorted = (rows: readonly unknown[]) => rows.map(row => JSON.stringify(row)).sort()
  expect(sorted(scalarsIn(file))).toEqual(sorted(expected))
  expect(expected.filter(([tag]) => tag === 'train/passAt1')).toHaveLength(3)
}, 60_000)

test('another tracker than there is is refused by name', async () => {
  const { code, stderr } = await troupe(['track', 'r', '--to', 'excel:x']).done
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringMatching(/--to excel:x: expected tensorboard:DIRECTORY/),
  })
})
