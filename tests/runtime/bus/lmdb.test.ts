/** The lmdb bus keeps the contract; and what it alone promises: durability, one writer, readers in other processes. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open as openLmdb } from 'lmdb'
import { type Bus, openBus, openLmdbBus } from '../../../runtime/bus'
import { bytesOfTransaction, trimMost } from '../../../runtime/bus/lmdb/allocate'
import { requireLocalDisk } from '../../../runtime/bus/lmdb/errors'
import { lives, startTimeOf, thisProcess } from '../../../runtime/bus/lmdb/holder'
import { reserveOf } from '../../../runtime/disk/freeSpace'
import { manualEffects } from '../../../runtime/effects'
import { canMount, onSmallDisk } from '../../support/smallDisk'
import { busContract, codeOf, record, textOf, until } from './contract'

busContract({
  name: 'lmdb',
  durable: true,
  start: async () => {
    const directory = mkdtempSync(join(tmpdir(), 'troupe-bus-'))
    return {
      open: () => openLmdbBus({ directory, mode: 'write' }),
      remove: async () => rmSync(directory, { recursive: true }),
    }
  },
})

interface Child {
  readonly process: ChildProcess
  readonly lines: string[]
  readonly exited: Promise<number | string | null>
}

const nodeArguments = (task: string, directory: string): string[] => [
  '-r',
  join(__dirname, '../../../cli/register.js'),
  join(__dirname, '../../children/busChild.ts'),
  task,
  directory,
]

describe('the lmdb bus alone', () => {
  let directory: string
  let children: Child[]
  const buses: Bus[] = []

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'troupe-bus-'))
    children = []
  })
  afterEach(async () => {
    for (const child of children) {
      child.process.kill('SIGKILL')
      await child.exited
    }
    for (const bus of buses.splice(0)) await bus.close()
    rmSync(directory, { recursive: true })
  })

  const child = (task: string): Child => {
    const process_ = spawn(process.execPath, nodeArguments(task, directory), { stdio: ['ignore', 'pipe', 'inherit'] })
    const lines: string[] = []
    let rest = ''
    process_.stdout.on('data', (data: Buffer) => {
      const parts = (rest + data).split('\n')
      rest = parts.pop()!
      lines.push(...parts)
    })
    const exited = new Promise<number | string | null>(resolve => {
      process_.on('close', (code, signal) => resolve(signal ?? code))
    })
    const started = { process: process_, lines, exited }
    children.push(started)
    return started
  }
  const open = async (mode: 'write' | 'read', at = directory, effects = manualEffects(Date.now())): Promise<Bus> => {
    const bus = await openLmdbBus({ directory: at, mode, effects })
    buses.push(bus)
    return bus
  }
  const fill = async (bus: Bus, count: number): Promise<void> => {
    await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
    for (let i = 0; i < count; i += 50) {
      await bus.append(Array.from({ length: 50 }, (_, j) => record('t', 'k', `${i + j}`.padEnd(1000, '.'))))
    }
  }

  test('kill -9 of a writer loses nothing that it had acknowledged', async () => {
    const writer = child('write')
    await until(() => writer.lines.length > 1500, 'the child acknowledged appends', 25_000)
    writer.process.kill('SIGKILL')
    expect(await writer.exited).toBe('SIGKILL')
    const bus = await open('write')
    const acknowledged = writer.lines.slice(1).map(line => line.split(' ') as [string, string, string])
    expect(acknowledged.length).toBeGreaterThanOrEqual(1500)
    for (const [partition, offset, text] of acknowledged) {
      const [read] = await bus.read('t', Number(partition), Number(offset), 1)
      expect(read!.headers.text).toBe(text)
    }
    const [position] = await bus.append([record('t', 'k', 'after', 0)])
    expect(position!.offset).toBe((await bus.offsets('t', 0)).next - 1)
  })

  test('a log whose writer ended while it made the tables is begun again; tables of another program are refused', async () => {
    const other = join(directory, 'other')
    const unlike = { noSubdir: false, overlappingSync: false } as const
    const root = openLmdb({ ...unlike, path: directory })
    await root.close()
    expect(await codeOf(openLmdbBus({ directory, mode: 'read' }))).toBe('bus.not_a_log')
    await fill(await open('write'), 50)
    mkdirSync(other)
    const theirs = openLmdb({ ...unlike, path: other })
    await theirs.put('key', 'value')
    await theirs.close()
    expect(await codeOf(openLmdbBus({ directory: other, mode: 'write' }))).toBe('bus.not_a_log')
  })

  test('a second writer is refused by name of the first, from this process and from another', async () => {
    const bus = await open('write')
    const error = await openLmdbBus({ directory, mode: 'write' }).catch(thrown => thrown)
    expect(error).toMatchObject({ code: 'bus.locked', boundary: 'bus' })
    expect(error.message).toContain(`process ${process.pid} `)
    const other = child('hold')
    await until(() => other.lines.length === 1, 'the child was refused', 20_000)
    expect(other.lines[0]).toContain(`error bus.locked process ${process.pid} `)
    await fill(bus, 50)
    await bus.close()
    const again = await open('write')
    expect((await again.offsets('t', 0)).next).toBe(50)
  })

  test('a lease of a living process holds, and that of a dead one is taken over', async () => {
    const holder = child('hold')
    await until(() => holder.lines[0] === 'open', 'the child holds the lease', 20_000)
    const error = await openLmdbBus({ directory, mode: 'write' }).catch(thrown => thrown)
    expect(error).toMatchObject({ code: 'bus.locked' })
    expect(error.message).toContain(`process ${holder.process.pid} `)
    holder.process.kill('SIGKILL')
    await holder.exited
    await fill(await open('write'), 50)
  })

  test('a pid that was given to another process, or that belongs to another boot, holds nothing', () => {
    const me = thisProcess()
    expect(me.startTime).toMatch(/^\d+$/)
    expect(lives(me, directory)).toBe(true)
    expect(lives({ ...me, startTime: '1' }, directory)).toBe(false)
    expect(lives({ ...me, boot: 'another' }, directory)).toBe(false)
    expect(startTimeOf(2 ** 22 + 1)).toBeNull()
    // Another pid namespace cannot be looked into: its heartbeat decides.
    expect(lives({ ...me, namespace: 'pid:[1]' }, directory)).toBe(false)
    writeFileSync(join(directory, 'writer.heartbeat'), '')
    expect(lives({ ...me, namespace: 'pid:[1]' }, directory)).toBe(true)
  })

  test('a writer that was taken over writes nothing more and says so', async () => {
    const bus = await open('write')
    await fill(bus, 50)
    const root = openLmdb({ path: directory, noSubdir: false, overlappingSync: false })
    const meta = root.openDB<unknown, string>({ name: 'troupe.meta', encoding: 'json', useVersions: true })
    const { version } = meta.getEntry('writer')!
    await meta.put('writer', { pid: 1 }, version! + 1)
    await root.close()
    expect(await codeOf(bus.append([record('t', 'k', 'late')]))).toBe('bus.fenced')
    expect(await codeOf(bus.append([record('t', 'k', 'later')]))).toBe('bus.fenced')
    expect(await bus.offsets('t', 0)).toEqual({ oldest: 0, next: 50 })
    const reader = await open('read')
    expect((await reader.offsets('t', 0)).next).toBe(50)
  })

  test('a reader in a second process tails what is written, and cannot write itself', async () => {
    const bus = await open('write')
    await fill(bus, 50)
    const tail = child('tail')
    await until(() => tail.lines.length === 51, 'the child read what was there', 20_000)
    const lags: number[] = []
    for (let i = 0; i < 10; i++) {
      await bus.append([record('t', 'k', `live ${i}`)])
      const before = performance.now()
      await until(() => tail.lines.includes(`live ${i}`), 'the child saw it')
      lags.push(performance.now() - before)
    }
    lags.sort((a, b) => a - b)
    expect(lags[5]!).toBeLessThan(250)
    // The file grows by far more than what the child had mapped.
    for (let i = 0; i < 40; i++) {
      await bus.append(Array.from({ length: 100 }, () => record('t', 'k', 'z'.repeat(4000))))
    }
    await until(() => tail.lines.length === 51 + 10 + 4000, 'the child followed the growing file', 20_000)
    const reader = await open('read')
    expect(textOf((await reader.read('t', 0, 50))[0]!)).toBe('live 0')
    expect(await codeOf(reader.append([record('t', 'k', 'x')]))).toBe('bus.read_only')
    expect(await codeOf(reader.createTopics([{ topic: 'u', partitions: 1, retentionMs: null }]))).toBe('bus.read_only')
    await bus.createTopics([{ topic: 'u', partitions: 1, retentionMs: null }])
    expect((await reader.listTopics()).map(topic => topic.topic)).toEqual(['t', 'u'])
  })

  test('records over age are all dropped, however many, and offsets go on, also after a reopen', async () => {
    const effects = manualEffects(Date.now())
    let bus = await open('write', directory, effects)
    await bus.createTopics([
      { topic: 'commands', partitions: 1, retentionMs: 1000 },
      { topic: 'facts', partitions: 1, retentionMs: null },
    ])
    for (let i = 0; i < 300; i++) await bus.append([record('commands', 'k', `${i}`), record('facts', 'k', `${i}`)])
    effects.advance(120_000)
    await bus.append([record('commands', 'k', 'new')])
    await bus.append([record('commands', 'k', 'newer')])
    await until(async () => (await bus.offsets('commands', 0)).oldest === 300, 'the expired records are dropped')
    expect(await bus.offsets('commands', 0)).toEqual({ oldest: 300, next: 302 })
    expect(await codeOf(bus.read('commands', 0, 299))).toBe('bus.offset_out_of_range')
    expect(textOf((await bus.read('commands', 0, 300))[0]!)).toBe('new')
    effects.advance(120_000)
    await bus.close()
    bus = await open('write', directory, effects)
    await bus.append([record('facts', 'k', 'x')])
    expect(await bus.offsets('commands', 0)).toEqual({ oldest: 302, next: 302 })
    const [position] = await bus.append([record('commands', 'k', 'last')])
    expect(position!.offset).toBe(302)
    expect(await bus.offsets('facts', 0)).toEqual({ oldest: 0, next: 301 })
    const seen: string[] = []
    const options = {
      topics: ['commands'],
      group: 'g',
      from: 'earliest',
      onError: (error: Error) => seen.push(error.message),
    } as const
    const consumer = await bus.subscribe(options, async records => void seen.push(...records.map(textOf)))
    await until(() => seen.length === 1, 'the consumer began at the oldest')
    expect(seen).toEqual(['last'])
    await consumer.close()
  })

  test('a drop of expired records fits into the least reserve of a run: it needs no room that a paused run lacks', async () => {
    const drops = Array.from({ length: trimMost.chunks }, () => ({ value: undefined }))
    expect(bytesOfTransaction([...drops, { value: 'oldest' }])).toBeLessThan(reserveOf({ freeBytes: 0, bytes: 0 }))
  })

  test('a directory that is not a log is refused, and left as it was', async () => {
    writeFileSync(join(directory, 'data.mdb'), 'these are not the pages of a database '.repeat(1000))
    const before = statSync(join(directory, 'data.mdb'))
    expect(await codeOf(openLmdbBus({ directory, mode: 'write' }))).toBe('bus.not_a_log')
    expect(statSync(join(directory, 'data.mdb')).mtimeMs).toBe(before.mtimeMs)
    rmSync(join(directory, 'data.mdb'))
    expect(await codeOf(openLmdbBus({ directory, mode: 'read' }))).toBe('bus.not_a_log')
    expect(await codeOf(openLmdbBus({ directory: join(directory, 'none'), mode: 'read' }))).toBe('bus.not_a_log')
    expect(existsSync(join(directory, 'none'))).toBe(false)
    const foreign = openLmdb({ path: directory, noSubdir: false, overlappingSync: false })
    await foreign.put('theirs', 1)
    await foreign.close()
    expect(await codeOf(openLmdbBus({ directory, mode: 'write' }))).toBe('bus.not_a_log')
    expect(await codeOf(openLmdbBus({ directory, mode: 'read' }))).toBe('bus.not_a_log')
  })

  test('a copy that was cut off is refused as torn wherever it was cut, and never ends the process', async () => {
    const bus = await open('write')
    await fill(bus, 1000)
    await bus.close()
    const size = statSync(join(directory, 'data.mdb')).size
    const copies = [0.02, 0.4, 0.97].map(share => {
      const copy = join(directory, `copy-${share}`)
      mkdirSync(copy)
      copyFileSync(join(directory, 'data.mdb'), join(copy, 'data.mdb'))
      truncateSync(join(copy, 'data.mdb'), Math.floor((size * share) / 4096) * 4096)
      return copy
    })
    const [first, ...others] = copies
    const checked = spawnSync(process.execPath, [...nodeArguments('check', first!), ...others], {
      encoding: 'utf8',
      timeout: 20_000,
    })
    expect(checked.stdout.match(/^error bus\.torn/gm)?.length).toBe(6)
    expect(checked.status).toBe(0)
    cpSync(join(directory, 'data.mdb'), join(directory, 'whole', 'data.mdb'))
    const whole = await open('write', join(directory, 'whole'))
    expect((await whole.offsets('t', 0)).next).toBe(1000)
  }, 60_000)

  test('a byte that changed on disk is reported as corrupt instead of being read', async () => {
    const bus = await open('write')
    await fill(bus, 50)
    const root = openLmdb({ path: directory, noSubdir: false, overlappingSync: false })
    const options = { name: 'troupe.records', encoding: 'binary', keyEncoding: 'binary' } as const
    const records = root.openDB<Buffer, Buffer>(options)
    const [first] = [...records.getRange({ limit: 1 })]
    first!.value[200]! ^= 1
    await records.put(first!.key, first!.value)
    await root.close()
    expect(await codeOf(bus.read('t', 0, 0))).toBe('bus.corrupt')
  })

  const whereMountable = canMount ? test : test.skip

  whereMountable(
    'a full disk refuses each append by its code, keeps what was acknowledged, and goes on with room',
    () => {
      const run = ['sh', '-c', 'head -c 2000000 /dev/zero > "$0/filler" && exec "$@"', directory, process.execPath]
      const [program = '', ...words] = onSmallDisk(directory, 4, ...run, ...nodeArguments('full', directory))
      const ran = spawnSync(program, words, { encoding: 'utf8', timeout: 25_000 })
      const lines = ran.stdout.split('\n')
      expect({ signal: ran.signal, status: ran.status, stderr: ran.stderr }).toEqual({
        ...{ signal: null, status: 0, stderr: '' },
      })
      expect(lines[1]).toMatch(
        /^error bus\.disk_full .* in \S+, or a quota is used up: it needs [\d.]+ [KM]iB, and [\d.]+ [KM]iB are free;/,
      )
      expect(lines[1]).toContain(directory)
      expect(lines[2]).toBe('again bus.disk_full')
      const [, acknowledged, next] = /^acknowledged (\d+) of (\d+)$/.exec(lines[3]!)!
      expect(Number(acknowledged)).toBeGreaterThan(50)
      expect(next).toBe(acknowledged)
      expect(lines.slice(4, 6)).toEqual(['then 0', 'reopened 1'])
    },
  )

  test('a log that reaches the limit on file sizes says so by name, and not that the disk is full', () => {
    const words = ['-c', 'ulimit -f 2048 && exec "$@"', 'sh', process.execPath, ...nodeArguments('full', directory)]
    const ran = spawnSync('sh', words, { encoding: 'utf8', timeout: 25_000 })
    expect(ran.signal).toBe(null)
    const [, error, again] = ran.stdout.split('\n')
    expect(error).toMatch(/^error bus\.file_too_large the log in \S+ has reached the largest size/)
    expect(again).toBe('again bus.file_too_large')
  })

  whereMountable('on a full disk an old log is read, and opening one to write, old or new, is refused by name', () => {
    const [program = '', ...words] = onSmallDisk(directory, 4, process.execPath, ...nodeArguments('filled', directory))
    const ran = spawnSync(program, words, { encoding: 'utf8', timeout: 25_000 })
    expect({ signal: ran.signal, status: ran.status, stderr: ran.stderr }).toEqual({
      signal: null,
      status: 0,
      stderr: '',
    })
    const lines = ran.stdout.split('\n').slice(1, 5)
    expect(lines[0]).toBe('read 1')
    expect(lines[1]).toMatch(
      /^error bus\.disk_full .*old, or a quota is used up: it needs [\d.]+ KiB, and 0 KiB are free/,
    )
    expect(lines[2]).toMatch(
      /^error bus\.disk_full .*new, or a quota is used up: it needs 1\.0 MiB, and 0 KiB are free/,
    )
    expect(lines[3]).toBe('then 1')
  })

  test('a write that the disk does not take in time is given up, and so is the bus', async () => {
    await fill(await open('write'), 50)
    await buses.pop()!.close()
    const bus = await openLmdbBus({ directory, mode: 'write', writeTimeoutMs: 300 })
    const blocker = child('stall')
    await until(() => blocker.lines.includes('stalled'), 'the child holds the lock', 20_000)
    expect(await codeOf(bus.append([record('t', 'k', 'x')]))).toBe('bus.write_stalled')
    expect(await codeOf(bus.append([record('t', 'k', 'y')]))).toBe('bus.write_stalled')
    expect((await bus.read('t', 0, 49)).length).toBe(1)
    await bus.close()
    blocker.process.kill('SIGKILL')
    await blocker.exited
  })

  test('network file systems are refused with their name', () => {
    for (const [type, name] of [
      [0x6969, 'NFS'],
      [-11317950, 'CIFS'],
      [0x65735546, 'FUSE'],
    ] as const) {
      let error: unknown
      try {
        requireLocalDisk('/data', () => type)
      } catch (thrown) {
        error = thrown
      }
      expect(error).toMatchObject({ code: 'bus.network_file_system', message: expect.stringContaining(name) })
    }
    requireLocalDisk(directory)
  })

  test('openBus opens by address and names what there is where it cannot', async () => {
    const bus = await openBus(`lmdb:${directory}`)
    expect(bus.kind).toBe('lmdb')
    const reader = await openBus(`lmdb:${directory}`, { mode: 'read' })
    await reader.close()
    await bus.close()
    const memory = await openBus('memory:')
    expect(memory.kind).toBe('memory')
    await memory.close()
    for (const address of ['kafka', 'lmdb:', 'redis:']) {
      const error = await openBus(address).catch(thrown => thrown)
      expect(error).toMatchObject({ code: 'bus.address_invalid', hint: expect.stringContaining('lmdb:DIRECTORY') })
    }
  })
})
