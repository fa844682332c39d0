/** How much of a long log is read before it is opened, and that sound logs are never called damaged. */
import fs, { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openLmdbBus } from '../../../runtime/bus/lmdb/lmdbBus'
import { findDamage } from '../../../runtime/bus/lmdb/pages/checkPages'
import { PageFile } from '../../../runtime/bus/lmdb/pages/pageFile'
import { openStore } from '../../../runtime/bus/lmdb/store'

const directory = mkdtempSync(join(tmpdir(), 'troupe-check-'))
const home = process.env.TROUPE_HOME
beforeAll(() => {
  process.env.TROUPE_HOME = join(directory, 'home')
})
afterAll(() => {
  if (home === undefined) delete process.env.TROUPE_HOME
  else process.env.TROUPE_HOME = home
  rmSync(directory, { recursive: true, force: true })
})

const log = join(directory, 'log')
const path = join(log, 'data.mdb')
const topic = { topic: 't', partitions: 1, retentionMs: null }
const records = (count: number, bytes: number) =>
  Array.from({ length: count }, () => ({ topic: 't', key: '', headers: {}, value: Buffer.alloc(bytes, 1) }))

/** Counts the pages that are read while the log is opened and closed. */
async function pagesRead(options: { readonly mode: 'write' | 'read'; readonly checkAll?: boolean }): Promise<number> {
  const read = jest.spyOn(PageFile.prototype, 'read')
  try {
    await (await openLmdbBus({ directory: log, ...options })).close()
    return read.mock.calls.length
  } finally {
    read.mockRestore()
  }
}

/** A leaf page that holds small records. */
function leafPage(): number {
  const bytes = readFileSync(path)
  const read = jest.spyOn(PageFile.prototype, 'read')
  expect(findDamage(path)).toBeUndefined()
  const pages = read.mock.calls.map(([page]) => page)
  read.mockRestore()
  const isLeaf = (page: number) => bytes.readUInt16LE(page * 4096 + 18) === 2
  return pages.find(p => isLeaf(p) && bytes.subarray(p * 4096, (p + 1) * 4096).includes(Buffer.alloc(900, 1)))!
}

test('a long log is walked whole once; while a writer lives, or the file is unchanged, few pages are read', async () => {
  const bus = await openLmdbBus({ directory: log, mode: 'write' })
  await bus.createTopics([topic])
  await bus.append(records(40, 900_000))
  for (let n = 0; n < 300; n++) await bus.append(records(1, 1000))
  const live = await pagesRead({ mode: 'read' })
  const whole = await pagesRead({ mode: 'read', checkAll: true })
  expect(whole).toBeGreaterThan(80)
  expect(live).toBeLessThan(whole / 3)
  const store = openStore(log, 'read', () => true, 'branches')
  await store.root.close()
  await bus.close()
  let known = await pagesRead({ mode: 'read' })
  expect(known).toBeGreaterThan(whole / 2)
  // The state is kept once the last change is 100 ms old.
  for (let tries = 0; tries < 100 && known > whole / 3; tries++) {
    await new Promise(done => setTimeout(done, 20))
    known = await pagesRead({ mode: 'read' })
  }
  expect(known).toBeLessThan(20)
  expect(await pagesRead({ mode: 'read', checkAll: true })).toBeGreaterThan(whole / 2)
  expect(await pagesRead({ mode: 'write' })).toBeLessThan(20)
  // That writer changed the file.
  expect(await pagesRead({ mode: 'read' })).toBeGreaterThan(whole / 2)
})

test('a long log that is damaged after its check is named as damaged', async () => {
  const sound = readFileSync(path)
  const bytes = Buffer.from(sound)
  const page = leafPage()
  bytes.fill(0, page * 4096, (page + 1) * 4096)
  const handle = fs.openSync(path, 'r+')
  fs.writeSync(handle, bytes, page * 4096, 4096, page * 4096)
  fs.closeSync(handle)
  const opened = openLmdbBus({ directory: log, mode: 'read' })
  await expect(opened).rejects.toMatchObject({ code: 'bus.torn', message: expect.stringContaining(`page ${page} `) })
  writeFileSync(path, sound)
})

test('a file that a commit extends while it is opened is not damaged', () => {
  const grown = readFileSync(path)
  const at = join(directory, 'grown.mdb')
  writeFileSync(at, grown.subarray(0, 16 * 4096))
  const file = PageFile.open(at)!
  writeFileSync(at, grown)
  file.metas()
  expect(file.bytes).toBe(grown.length)
  expect(file.read(20, Buffer.alloc(4096))).toEqual(grown.subarray(20 * 4096, 21 * 4096))
  file.close()
})

test('a page that the disk cannot read is a damaged page', () => {
  const { readSync } = fs
  const at = (page: number) => page * 4096
  const leaf = leafPage()
  const spy = jest.spyOn(fs, 'readSync').mockImplementation(((...args: Parameters<typeof readSync>) => {
    if ((args as unknown[])[4] === at(leaf)) throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' })
    return readSync(...args)
  }) as typeof readSync)
  try {
    expect(findDamage(path)).toMatchObject({ page: leaf, why: 'the disk cannot read it (EIO)' })
  } finally {
    spy.mockRestore()
  }
})

test('a disk that cannot read the first pages gives a damaged page, and a damaged log', async () => {
  const { readSync } = fs
  const spy = jest.spyOn(fs, 'readSync').mockImplementation(((...args: Parameters<typeof readSync>) => {
    if ((args as unknown[])[4] === 0) throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' })
    return readSync(...args)
  }) as typeof readSync)
  try {
    expect(findDamage(path)).toMatchObject({ page: 0, why: 'the disk cannot read it (EIO)' })
    await expect(openLmdbBus({ directory: log, mode: 'read' })).rejects.toMatchObject({
      code: 'bus.torn',
      message: expect.stringContaining(log),
    })
  } finally {
    spy.mockRestore()
  }
})
