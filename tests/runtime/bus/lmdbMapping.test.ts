/** The lmdb bus maps its log's file once, however much the log grows, so that no page counts twice in resident memory. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openLmdbBus } from '../../../runtime/bus'
import { record } from './contract'

const recordBytes = 512 * 1024

const onLinux = existsSync('/proc/self/maps') ? test : test.skip

onLinux('a log that has grown by 16 MiB is mapped once, for the writer and for a reader', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'troupe-bus-'))
  const mappings = () =>
    readFileSync('/proc/self/maps', 'utf8')
      .split('\n')
      .filter(line => line.endsWith(join(directory, 'data.mdb'))).length
  const writer = await openLmdbBus({ directory, mode: 'write' })
  try {
    await writer.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
    for (let at = 0; at < 32; at++)
      await writer.append([{ ...record('t', 'k', ''), value: Buffer.alloc(recordBytes, at) }])
    expect(mappings()).toBe(1)
  } finally {
    await writer.close()
  }
  const reader = await openLmdbBus({ directory, mode: 'read' })
  try {
    expect((await reader.read('t', 0, 31)).map(one => one.value.byteLength)).toEqual([recordBytes])
    expect(mappings()).toBe(1)
  } finally {
    await reader.close()
    rmSync(directory, { recursive: true })
  }
})
