/** What salvage makes of a log that lost an entry of a topic, or every chunk of a partition. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { runId } from '../../messages/ids'
import { type TopicName, topicOnBus } from '../../messages/topics'
import { salvageRun } from '../../replay/salvage/salvageRun'
import type { Bus, NewRecord } from '../../runtime/bus/bus'
import { openLmdbBus } from '../../runtime/bus/lmdb/lmdbBus'
import { treesOf } from '../../runtime/bus/lmdb/pages/checkPages'
import { PageFile } from '../../runtime/bus/lmdb/pages/pageFile'
import { walkTree } from '../../runtime/bus/lmdb/pages/walkTree'
import { partitionIdOf } from '../../runtime/bus/lmdb/recordKey'
import { openRun } from '../../runtime/openRun'
import { runDirectory } from '../../runtime/runDirectory'
import { quickstartHistory, recordsOf, writeHistory } from '../support/histories'

const directory = mkdtempSync(join(tmpdir(), 'troupe-salvage-lost-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const history = quickstartHistory()
const run = runId(history.run)
const of = (topic: TopicName) => recordsOf(history).filter(record => record.topic === topicOnBus(run, topic))
const facts = [...of('runs').slice(0, 3), ...of('trajectories').slice(0, 60)]
const learner = of('learner').slice(0, 2)
const status: NewRecord = { topic: topicOnBus(run, 'telemetry'), key: '', headers: {}, value: Buffer.alloc(900) }
const fileOf = (name: string) => join(runDirectory(join(directory, name), run).log, 'data.mdb')

/** Writes a log of small chunks, so that it has many leaf pages; `then` runs before the writer closes. */
async function written(name: string, records: readonly NewRecord[], then = async (_: Bus) => {}): Promise<void> {
  mkdirSync(dirname(fileOf(name)), { recursive: true })
  const bus = await openLmdbBus({ directory: dirname(fileOf(name)), mode: 'write' })
  await writeHistory(bus, { ...history, records: [] })
  for (const record of records) await bus.append([record])
  await then(bus)
  await bus.close()
}

beforeAll(async () => {
  await written('end', [...facts, ...learner])
  await written('middle', [...facts, ...learner, ...Array<NewRecord>(20).fill(status)])
})

/** Copies a log, and changes the copy. */
function damaged(from: string, name: string, change: (bytes: Buffer) => void): string {
  mkdirSync(dirname(fileOf(name)), { recursive: true })
  const bytes = readFileSync(fileOf(from))
  change(bytes)
  writeFileSync(fileOf(name), bytes)
  return `lmdb:${join(directory, name)}`
}

/** Leaf pages of the newest snapshot with chunks of a topic. */
function leavesOf(name: string, topicId: number): readonly number[] {
  const file = PageFile.open(fileOf(name))!
  const [{ lastPage, transaction }, pages] = [file.metas()[0], new Set<number>()]
  const damaged = (fault: Error) => {
    throw fault
  }
  const options = { file, lastPage, transaction, used: new Uint8Array(lastPage + 1), damaged }
  const node = ({ key, page }: { readonly key: Buffer; readonly page: number }) => {
    if (partitionIdOf(key) >> 16 === topicId) pages.add(page)
  }
  walkTree(treesOf(file.metas()[0], options).get('troupe.records')!, 'records', { ...options, node })
  file.close()
  return [...pages]
}

const zero = (bytes: Buffer, pages: readonly number[]) => {
  for (const page of pages) bytes.fill(0, page * 4096, (page + 1) * 4096)
}
const learnerId = 3
const impossible = { code: 'replay.salvage_impossible' }

async function savedOf(bus: string, topic: TopicName): Promise<number> {
  const opened = await openRun(bus, run, 'read')
  const { next } = await opened.bus.offsets(topicOnBus(run, topic), 0)
  await opened.bus.close()
  return next
}

test('a changed bit in the entry of a topic costs no fact while the older snapshot has the entry, else it is refused by name', async () => {
  const key = `topic:${topicOnBus(run, 'learner')}`
  const sound = readFileSync(fileOf('end'))
  const places: number[] = []
  for (let at = sound.indexOf(key); at >= 0; at = sound.indexOf(key, at + 1)) {
    places.push(sound.indexOf('"partitions":1', at) + '"partitions":'.length)
  }
  expect(places.length).toBeGreaterThan(1)
  const flip = (at: readonly number[]) => (bytes: Buffer) => {
    for (const place of at) bytes[place]! ^= 4
  }
  let found = 0
  for (const place of places) {
    const { to, damage, lost } = await salvageRun({ bus: damaged('end', `bit${place}`, flip([place])), run })
    expect(await savedOf(to, 'learner')).toBe(learner.length)
    expect(lost).toEqual([])
    if (damage.some(text => text.includes(key))) found++
  }
  expect(found).toBe(1)
  const all = salvageRun({ bus: damaged('end', 'bits', flip(places)), run })
  await expect(all).rejects.toMatchObject({ ...impossible, message: expect.stringContaining("topic 'learner'") })
})

test.each([['end'], ['middle']])(
  'a log that lost every chunk of a partition of facts at its %s is refused',
  async name => {
    const pages = leavesOf(name, learnerId)
    expect(pages.length).toBeGreaterThan(0)
    const bus = damaged(name, `none-${name}`, bytes => zero(bytes, pages))
    await expect(salvageRun({ bus, run })).rejects.toMatchObject({
      ...impossible,
      message: expect.stringMatching(/all facts of (trajectories:\d|learner:0) may be lost/),
    })
  },
)

test('what only the last transaction wrote is lost, and all before it is saved from the older snapshot', async () => {
  const late = { topic: topicOnBus(run, 'dead-letters'), key: '', headers: {}, value: Buffer.alloc(9) }
  await written('open', [...facts, learner[0]!], async bus => {
    await new Promise(done => setTimeout(done, 5))
    await bus.append([learner[1]!, late])
    cpSync(dirname(fileOf('open')), dirname(fileOf('torn')), { recursive: true })
  })
  const bus = damaged('torn', 'older', bytes => zero(bytes, leavesOf('torn', learnerId)))
  const { to, until, lost } = await salvageRun({ bus, run })
  expect(await savedOf(to, 'learner')).toBe(1)
  expect(await savedOf(to, 'runs')).toBe(3)
  expect(until).not.toBeNull()
  expect(lost.map(({ topic }) => topic)).toContain('learner')
})
