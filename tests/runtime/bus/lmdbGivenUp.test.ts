/**
 * lmdb can give a transaction up (MDB_BAD_TXN) because its list of free pages in memory contradicts the file; a second
 * write to the same handle then aborts the process. The writer opens the log again and repeats the transaction. No log
 * is known that makes lmdb do so every time, so the tests let its handle report it.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStore, type Store } from '../../../runtime/bus/lmdb/store'
import { LmdbWriter } from '../../../runtime/bus/lmdb/writer'

jest.mock('../../../runtime/bus/lmdb/store', () => {
  const real = jest.requireActual('../../../runtime/bus/lmdb/store')
  return { ...real, openStore: jest.fn(real.openStore) }
})

import { systemEffects } from '../../../runtime/effects'

const directory = mkdtempSync(join(tmpdir(), 'troupe-given-up-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** A store whose next conditional writes fail as lmdb's do. */
function failing(store: Store, code: number, times: number): Store {
  const write = store.meta.ifVersion.bind(store.meta)
  let left = times
  store.meta.ifVersion = (...args: Parameters<typeof write>) => {
    if (left-- <= 0) return write(...args)
    const commitError = Promise.reject(Object.assign(new Error('MDB_BAD_TXN: it must abort'), { code }))
    commitError.catch(() => {})
    return Promise.reject(Object.assign(new Error('Commit failed'), { commitError }))
  }
  return store
}

const writerOf = (store: Store): LmdbWriter =>
  new LmdbWriter(store, { effects: systemEffects, writeTimeoutMs: 10_000, ownsLease: false, onClosed: () => {} })
const record = (value: string) => ({ topic: 't', partition: 0, key: 'k', headers: {}, value: Buffer.from(value) })
const valuesOf = (writer: LmdbWriter): string[] =>
  writer.read('t', 0, 0, 10, 1e6).map(({ value }) => Buffer.from(value).toString())

test('a transaction that lmdb gave up is written once, after the log was opened again, and so is what follows', async () => {
  const store = openStore(join(directory, 'once'), 'write', () => false)
  const order: string[] = []
  const { openStore: open } = jest.requireActual('../../../runtime/bus/lmdb/store')
  const close = store.root.close.bind(store.root)
  store.root.close = async () => {
    await close()
    order.push('closed')
  }
  const writer = writerOf(store)
  await writer.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
  await writer.append([record('before')])
  failing(store, -30782, 1)
  jest.mocked(openStore).mockImplementationOnce((...args) => {
    order.push('opened')
    return open(...args)
  })
  const warned = jest.spyOn(process.stderr, 'write').mockReturnValue(true)
  const [first] = await writer.append([record('given up')])
  expect(String(warned.mock.calls[0]?.[0])).toContain('the log is opened again')
  warned.mockRestore()
  await writer.append([record('after')])
  expect(first).toMatchObject({ offset: 1 })
  expect(valuesOf(writer)).toEqual(['before', 'given up', 'after'])
  // A handle that is opened before the other one is closed has the same list of free pages.
  expect(order).toEqual(['closed', 'opened'])
  await writer.close()
  const again = writerOf(openStore(join(directory, 'once'), 'write', () => false))
  expect(valuesOf(again)).toEqual(['before', 'given up', 'after'])
  await again.close()
})

test('another error of lmdb ends the writer, as before', async () => {
  const writer = writerOf(
    failing(
      openStore(join(directory, 'other'), 'write', () => false),
      -30780,
      1,
    ),
  )
  await expect(writer.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])).rejects.toMatchObject({
    code: 'bus.write_failed',
  })
  await writer.close()
})
