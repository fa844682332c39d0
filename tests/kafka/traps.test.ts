/**
 * What kafkajs and Kafka do that would lose, stall or double work if nothing were done about it: a test each, against a
 * real broker. Brokers that die are in faults.test.ts, settings and credentials in settings.test.ts.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import net from 'node:net'
import { join } from 'node:path'
import { Kafka, logLevel } from 'kafkajs'
import { runId } from '../../messages/ids'
import { type Bus, type BusRecord, type NewRecord, openBus, type Subscription } from '../../runtime/bus'
import { parseKafkaAddress } from '../../runtime/bus/kafka/address'
import { createKafkaClient } from '../../runtime/bus/kafka/client'
import { lockRun } from '../../runtime/bus/runLock'
import { codeOf, gate, record, textOf } from '../runtime/bus/contract'
import { type KafkaServers, startKafka } from '../support/kafka'
import { until } from '../support/until'

jest.setTimeout(60_000)

let kafka: KafkaServers
const buses: Bus[] = []
const children: ChildProcess[] = []
let tests = 0
beforeAll(async () => {
  kafka = await startKafka()
})
afterAll(() => kafka?.stop())
beforeEach(() => {
  tests++
})
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
  for (const bus of buses.splice(0)) await bus.close()
})

const address = (settings = ''): string => `${kafka.address}?prefix=t${tests}.${settings}`
const open = async (settings = ''): Promise<Bus> => {
  const bus = await openBus(address(settings))
  buses.push(bus)
  return bus
}
const create = (bus: Bus, partitions = 1, retentionMs: number | null = null): Promise<void> =>
  bus.createTopics([{ topic: 't', partitions, retentionMs }])
const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))
const fail = (error: Error): void => {
  throw error
}
const raw = (): Kafka => new Kafka({ brokers: [kafka.address.slice('kafka://'.length)], logLevel: logLevel.NOTHING })
/** The topic as the broker knows it. */
const wire = (): string => `t${tests}.t`
/** As a retention would, at once. */
async function dropBefore(offset: string): Promise<void> {
  const admin = raw().admin()
  await admin.connect()
  await admin.fetchTopicOffsets(wire())
  await admin.deleteTopicRecords({ topic: wire(), partitions: [{ partition: 0, offset }] })
  await admin.disconnect()
}

test('records that are appended one by one travel in few requests', async () => {
  const bus = await open()
  await create(bus)
  await bus.append([record('t', 'k', 'first')])
  const began = performance.now()
  const count = 4000
  const appends = Array.from({ length: count }, (_, i) => bus.append([record('t', 'k', `${i}`)]))
  const positions = (await Promise.all(appends)).flat()
  expect(positions.map(position => position.offset)).toEqual(Array.from({ length: count }, (_, i) => i + 1))
  // One request each, with one in flight, would take 4,000 round trips to a disk.
  expect(performance.now() - began).toBeLessThan(3000)
})

test('more than a request holds goes in several, and one partition never gets more than its broker takes', async () => {
  const bus = await open()
  await create(bus, 2)
  const value = Buffer.alloc(300_000, 1)
  const records: NewRecord[] = Array.from({ length: 40 }, (_, i) => ({
    topic: 't',
    key: `${i}`,
    headers: {},
    value,
    partition: i % 2,
  }))
  const positions = await bus.append(records)
  expect(positions.map(({ offset }) => offset)).toEqual(records.map((_, i) => Math.floor(i / 2)))
})

test('an append that no broker can take is refused when too much waits, and never held without bound', async () => {
  const bus = await open('&deliveryTimeoutMs=60000')
  await create(bus)
  await bus.append([record('t', 'k', 'x')])
  kafka.brokers[0]!.kill('SIGSTOP')
  const appends: Promise<unknown>[] = []
  let refused = 'never'
  try {
    for (let i = 0; i < 200 && refused === 'never'; i++) {
      const append = bus.append([{ topic: 't', key: 'k', headers: {}, value: Buffer.alloc(800_000) }])
      append.catch(thrown => {
        refused = thrown.code
      })
      appends.push(append)
      await pause(0)
    }
    expect(refused).toBe('bus.overloaded')
    expect(appends.length).toBeLessThan(100)
  } finally {
    kafka.brokers[0]!.kill('SIGCONT')
  }
  const taken = await Promise.allSettled(appends)
  expect(taken.filter(one => one.status === 'fulfilled').length).toBe(appends.length - 1)
})

test('a handler that takes twice the session keeps its partitions, because heartbeats do not wait for it', async () => {
  const bus = await open('&sessionTimeoutMs=4000')
  await create(bus)
  const assigned: number[] = []
  const revoked: number[] = []
  const seen: string[] = []
  const member = await bus.subscribe(
    {
      topics: ['t'],
      group: 'g',
      from: 'earliest',
      maxBatch: 1,
      onError: fail,
      onAssigned: async ({ partition }) => void assigned.push(partition) as undefined,
      onRevoked: async ({ partition }) => void revoked.push(partition),
    },
    async records => {
      if (seen.length === 0) await pause(8000)
      seen.push(...records.map(textOf))
    },
  )
  await bus.append(['a', 'b', 'c'].map(text => record('t', 'k', text)))
  await until(() => seen.length === 3, 20_000)
  expect(seen).toEqual(['a', 'b', 'c'])
  expect([assigned, revoked]).toEqual([[0], []])
  await member.commit({ topic: 't', partition: 0, offset: 3 })
})

test('a member that joins while the others work for long is dealt in without their being thrown out', async () => {
  const bus = await open('&sessionTimeoutMs=4000')
  await create(bus, 4)
  const busy = gate()
  const counts = new Map<string, number>()
  const note = (records: readonly BusRecord[]): void => {
    for (const one of records) counts.set(textOf(one), (counts.get(textOf(one)) ?? 0) + 1)
  }
  const options = { topics: ['t'], group: 'g', from: 'earliest', maxBatch: 1, onError: fail } as const
  const first = await bus.subscribe(options, async records => {
    await busy.opened
    note(records)
    const { topic, partition, offset } = records.at(-1)!
    await first.commit({ topic, partition, offset: offset + 1 })
  })
  const texts = Array.from({ length: 40 }, (_, i) => `${i}`)
  await bus.append(texts.map((text, i) => record('t', 'k', text, i % 4)))
  await pause(200)
  const other = await open('&sessionTimeoutMs=4000')
  const joining = other.subscribe(options, async records => note(records))
  await pause(8000)
  busy.open()
  await joining
  await until(() => counts.size === 40, 20_000)
  expect(Math.max(...counts.values())).toBe(1)
})

test('a buffer is filled to its high-water mark and no further while its handler rests', async () => {
  const bus = await open()
  await create(bus)
  const value = Buffer.alloc(200_000)
  for (let i = 0; i < 30; i++) {
    await bus.append(Array.from({ length: 10 }, () => ({ topic: 't', key: 'k', headers: {}, value })))
  }
  const stuck = gate()
  let count = 0
  const before = process.memoryUsage().arrayBuffers
  await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', maxBatch: 1, onError: fail }, async records => {
    if (count++ === 0) await stuck.opened
    expect(records.length).toBe(1)
  })
  await pause(1000)
  const held = process.memoryUsage().arrayBuffers - before
  stuck.open()
  // 60 MB are there; 4 MiB, an answer over it, and what was not collected yet of those before may be in memory.
  expect(held).toBeLessThan(30e6)
  await until(() => count === 300, 20_000)
})

test('after close nothing is handled, however much is buffered or on its way', async () => {
  const bus = await open()
  await create(bus)
  let handled = 0
  const member = await bus.subscribe(
    { topics: ['t'], group: 'g', from: 'earliest', maxBatch: 1, onError: fail },
    async () => {
      handled++
    },
  )
  const appending = Promise.all(Array.from({ length: 500 }, (_, i) => bus.append([record('t', 'k', `${i}`)])))
  await until(() => handled > 0)
  await member.close()
  const then = handled
  await appending
  await pause(500)
  expect(handled).toBe(then)
  expect(await codeOf(member.commit({ topic: 't', partition: 0, offset: 1 }))).toBe('bus.partition_not_owned')
})

test('a consumer whose broker stays away says so when its time is over, instead of waiting in silence', async () => {
  const bus = await open('&sessionTimeoutMs=1000&stallTimeoutMs=3000')
  await create(bus)
  const errors: Error[] = []
  await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: e => errors.push(e) }, async () => {})
  kafka.brokers[0]!.kill('SIGKILL')
  try {
    await until(() => errors.length > 0, 40_000, 50)
    expect(errors).toMatchObject([{ code: 'bus.unreachable', retriable: true }])
    expect(errors[0]!.message).toContain('127.0.0.1')
  } finally {
    await kafka.brokers[0]!.start()
  }
})

test('a broker that stays away leaves no listeners behind, however often it is asked for', async () => {
  const opened = jest.spyOn(net, 'connect')
  const client = createKafkaClient(parseKafkaAddress(address()))
  const cluster = client.cluster()
  await cluster.connect()
  await cluster.refreshMetadata()
  const { nodeId } = (await cluster.metadata({ topics: [] })).brokers[0]!
  const find = () => cluster.findBroker({ nodeId })
  const broker = await find()
  // Fetches have a connection of their own, which is not opened again as long as the other one cannot be.
  const waits = { maxWaitTime: 0, minBytes: 0, maxBytes: 1024 }
  await broker.fetch({ replicaId: -1, isolationLevel: 0, ...waits, topics: [] })
  kafka.brokers[0]!.kill('SIGKILL')
  try {
    const isGone = () =>
      find().then(
        () => false,
        () => true,
      )
    await until(isGone)
    for (let asked = 0; asked < 15; asked++) expect(await isGone()).toBe(true)
    const sockets = opened.mock.results.map(({ value }) => value as net.Socket)
    expect(Math.max(...sockets.map(socket => socket.listenerCount('connect')))).toBeLessThan(3)
  } finally {
    opened.mockRestore()
    await kafka.brokers[0]!.start()
    await cluster.disconnect()
    client.destroy()
  }
})

test('a client that is destroyed keeps no process alive, even by a connection that kafkajs has lost', async () => {
  const timers = (): number => process.getActiveResourcesInfo().filter(kind => kind === 'Timeout').length
  const before = timers()
  const client = createKafkaClient(parseKafkaAddress(address()))
  const lost = client.cluster()
  await lost.connect()
  await lost.refreshMetadata()
  expect(timers()).toBeGreaterThan(before) // kafkajs looks for late answers with a timer a connection
  client.destroy()
  await until(() => timers() <= before, 5000)
  await expect(client.cluster().connect()).rejects.toThrow('the Kafka client is closed')
})

test('a broker that is started again finds its consumers waiting, and they go on where they were', async () => {
  const bus = await open('&sessionTimeoutMs=2000')
  await create(bus)
  const seen: string[] = []
  const errors: Error[] = []
  const member: Subscription = await bus.subscribe(
    { topics: ['t'], group: 'g', from: 'earliest', onError: e => errors.push(e) },
    async records => {
      seen.push(...records.map(textOf))
      await member.commit({ topic: 't', partition: 0, offset: records.at(-1)!.offset + 1 }).catch(() => {})
    },
  )
  await bus.append([record('t', 'k', 'before')])
  await until(() => seen.length === 1)
  kafka.brokers[0]!.kill('SIGKILL')
  const during = bus.append([record('t', 'k', 'during')])
  await pause(1000)
  await kafka.brokers[0]!.start()
  await during
  await bus.append([record('t', 'k', 'after')])
  await until(() => seen.includes('after'), 30_000, 50)
  expect([...new Set(seen)]).toEqual(['before', 'during', 'after'])
  expect(errors).toEqual([])
})

test('an owner that is stopped and wakes up hands nothing more out, cannot commit, and joins again', async () => {
  const bus = await open('&sessionTimeoutMs=1500')
  await create(bus)
  await bus.append([record('t', 'k', 'a')])
  const child = spawn(
    process.execPath,
    [
      '-r',
      join(__dirname, '../../cli/register.js'),
      join(__dirname, '../children/kafkaChild.ts'),
      address('&sessionTimeoutMs=1500'),
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  children.push(child)
  let said = ''
  child.stdout.on('data', data => {
    said += data
  })
  await until(() => said.includes('took a'), 20_000)
  child.kill('SIGSTOP')
  const seen: string[] = []
  const mine = await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: fail }, async records => {
    seen.push(...records.map(textOf))
  })
  await until(() => seen.length === 1, 20_000)
  await bus.append([record('t', 'k', 'b')])
  await until(() => seen.length === 2)
  child.kill('SIGCONT')
  await until(() => said.includes('revoked 0'), 20_000)
  expect(said).toContain('commit bus.partition_not_owned')
  expect(said).not.toContain('took b')
  await mine.commit({ topic: 't', partition: 0, offset: 2 })
  await mine.close()
  await bus.append([record('t', 'k', 'c')])
  await until(() => said.includes('took c'), 20_000)
  expect(said).not.toContain('took b')
})

test('a process that was stopped for longer than a session learns that it lost the run it drives', async () => {
  const script = `
    const { openBus } = require('./runtime/bus'), { lockRun } = require('./runtime/bus/runLock')
    void openBus(${JSON.stringify(address('&sessionTimeoutMs=1500'))}).then(async bus => {
      await lockRun(bus, 'r', error => console.log(error.code))
      console.log('holds')
    })`
  const child = spawn(process.execPath, ['-r', join(__dirname, '../../cli/register.js'), '-e', script], {
    cwd: join(__dirname, '../..'),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  let said = ''
  child.stdout.on('data', data => {
    said += data
  })
  await until(() => said.includes('holds'), 20_000)
  const bus = await open('&sessionTimeoutMs=1500')
  const refused = await lockRun(bus, runId('r'), fail).catch(thrown => thrown)
  expect(refused).toMatchObject({ code: 'bus.run_held' })
  child.kill('SIGSTOP')
  const mine = await lockRun(bus, runId('r'), fail)
  child.kill('SIGCONT')
  await until(() => said.includes('bus.run_lost'), 20_000)
  await mine.release()
})

test('what a group committed is gone from a topic with a retention: it goes on with the oldest that is left', async () => {
  const bus = await open()
  await create(bus, 1, 3_600_000)
  await bus.append(Array.from({ length: 10 }, (_, i) => record('t', 'k', `${i}`)))
  const first = await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: fail }, async () => {})
  await first.commit({ topic: 't', partition: 0, offset: 2 })
  await first.close()
  await dropBefore('7')
  expect(await bus.offsets('t', 0)).toEqual({ oldest: 7, next: 10 })
  expect(await codeOf(bus.read('t', 0, 3))).toBe('bus.offset_out_of_range')
  const seen: string[] = []
  await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: fail }, async records => {
    seen.push(...records.map(textOf))
  })
  await until(() => seen.length === 3)
  expect(seen).toEqual(['7', '8', '9'])
})

test('a group that got further than its log now reaches is refused, instead of skipping what comes up to there', async () => {
  const bus = await open()
  await create(bus)
  await bus.append([record('t', 'k', 'a')])
  const admin = raw().admin()
  await admin.connect()
  await admin.setOffsets({ groupId: `t${tests}.g`, topic: wire(), partitions: [{ partition: 0, offset: '50' }] })
  await admin.disconnect()
  const errors: Error[] = []
  await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: e => errors.push(e) }, async () => {})
  await until(() => errors.length > 0, 20_000)
  expect(errors).toMatchObject([
    { code: 'bus.offset_out_of_range', hint: expect.stringContaining('--reset-offsets'), retriable: false },
  ])
  expect(errors[0]!.message).toContain('t/0 has offsets 0 to 0, so offset 50 is out of range')
})

test('a consumer whose log is made anew under it ends with an error that says where it was', async () => {
  const bus = await open()
  await create(bus)
  await bus.append(Array.from({ length: 5 }, (_, i) => record('t', 'k', `${i}`)))
  const seen: string[] = []
  const errors: Error[] = []
  await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: e => errors.push(e) }, async records => {
    seen.push(...records.map(textOf))
  })
  await until(() => seen.length === 5)
  const admin = raw().admin()
  await admin.connect()
  await admin.deleteTopics({ topics: [wire()] })
  const remake = () => admin.createTopics({ topics: [{ topic: wire(), numPartitions: 1 }], waitForLeaders: true })
  await until(() => remake().catch(() => false), 20_000, 100)
  await admin.disconnect()
  await until(() => errors.length > 0, 30_000)
  expect(errors).toMatchObject([{ code: 'bus.offset_out_of_range' }])
  expect(errors[0]!.message).toContain('t/0 is empty and ends at offset 0, so offset 5 is out of range')
})

test('a slow consumer whose next record is dropped ends with an error that says where it was', async () => {
  const bus = await open()
  await create(bus, 1, 3_600_000)
  const value = Buffer.alloc(500_000)
  for (let i = 0; i < 40; i++) await bus.append([{ topic: 't', key: 'k', headers: {}, value }])
  const stuck = gate()
  const errors: Error[] = []
  await bus.subscribe(
    { topics: ['t'], group: 'g', from: 'earliest', maxBatch: 1, onError: e => errors.push(e) },
    () => stuck.opened,
  )
  await pause(500)
  await dropBefore('39')
  stuck.open()
  await until(() => errors.length > 0, 20_000)
  expect(errors).toMatchObject([{ code: 'bus.offset_out_of_range' }])
})

test('a group that others use with another protocol is left alone, and named', async () => {
  const bus = await open()
  await create(bus)
  const foreign = raw().consumer({ groupId: `t${tests}.g` })
  await foreign.connect()
  await foreign.subscribe({ topic: wire() })
  const joined = new Promise(resolve => foreign.on('consumer.group_join', resolve))
  await foreign.run({ eachMessage: async () => {} })
  await joined
  const errors: Error[] = []
  await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: e => errors.push(e) }, async () => {})
  await until(() => errors.length > 0, 20_000)
  expect(errors).toMatchObject([{ code: 'bus.group_foreign' }])
  expect(errors[0]!.message).toContain(`t${tests}.g`)
  await foreign.disconnect()
})

test('every record stands in the topic with readable headers, for a plain kafkajs consumer too', async () => {
  const bus = await open()
  await create(bus)
  await bus.append([
    { topic: 't', key: 'group', headers: { type: 'turn.completed', turn: '3' }, value: Buffer.from('v') },
  ])
  const consumer = raw().consumer({ groupId: `plain${tests}` })
  await consumer.connect()
  await consumer.subscribe({ topic: wire(), fromBeginning: true })
  const headers = await new Promise<unknown>(resolve => {
    void consumer.run({
      eachMessage: async ({ message }) => resolve({ key: String(message.key), type: String(message.headers!.type) }),
    })
  })
  await consumer.disconnect()
  expect(headers).toEqual({ key: 'group', type: 'turn.completed' })
})

test('headers named like members of every object come back as they were', async () => {
  const bus = await open()
  await create(bus)
  const headers = { constructor: 'a', toString: 'b', hasOwnProperty: '', ['__proto__']: 'c' }
  await bus.append([{ topic: 't', key: 'k', headers, value: Buffer.alloc(0) }])
  const [read] = await bus.read('t', 0, 0)
  expect(Object.entries(read!.headers).sort()).toEqual(Object.entries(headers).sort())
})

/** Of Node itself, or by the package that may be installed for it. */
function hasZstd(): boolean {
  if ('zstdCompress' in require('node:zlib')) return true
  try {
    require.resolve('@mongodb-js/zstd')
    return true
  } catch {
    return false
  }
}

test('compression: gzip is smaller on the broker and the same for the reader; zstd needs a Node that has it', async () => {
  const gzip = await open('&compression=gzip')
  await create(gzip)
  const value = Buffer.alloc(500_000, 'a turn of a rollout ')
  await gzip.append([{ topic: 't', key: 'k', headers: {}, value }])
  const [read] = await (await open()).read('t', 0, 0)
  expect(value.equals(read!.value)).toBe(true)
  const zstd = openBus(address('&compression=zstd'))
  if (hasZstd()) {
    const bus = await zstd
    buses.push(bus)
    await bus.append([{ topic: 't', key: 'k', headers: {}, value }])
    expect(value.equals((await bus.read('t', 0, 1))[0]!.value)).toBe(true)
  } else {
    const error = await zstd.catch(thrown => thrown)
    expect(error).toMatchObject({ code: 'bus.codec_missing', hint: expect.stringContaining('gzip') })
  }
})

test('records that the broker keeps as zstd are read where Node has it; elsewhere reader and follower say what to do', async () => {
  const bus = await open()
  const admin = raw().admin()
  await admin.connect()
  const configEntries = [{ name: 'compression.type', value: 'zstd' }]
  await admin.createTopics({ topics: [{ topic: wire(), numPartitions: 1, configEntries }], waitForLeaders: true })
  await admin.disconnect()
  // From what compresses well to what does not, and one as large as a record may be.
  const values = [1024, 64 * 1024, 800 * 1024].flatMap(size => [Buffer.alloc(size, 'a turn '), randomBytes(size)])
  await bus.append(values.map(value => ({ topic: 't', key: 'k', headers: {}, value })))
  const seen: BusRecord[] = []
  const errors: Error[] = []
  await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError: e => errors.push(e) }, async records => {
    seen.push(...records)
  })
  await until(() => seen.length === values.length || errors.length > 0, 20_000)
  if (hasZstd()) {
    expect(errors).toEqual([])
    expect(values.every((value, k) => value.equals(seen[k]!.value))).toBe(true)
    return
  }
  const expected = { code: 'bus.codec_missing', retriable: false, hint: expect.stringContaining('Node 22.15') }
  expect(errors).toMatchObject([expected])
  expect(seen).toEqual([])
  await expect(bus.read('t', 0, 0)).rejects.toMatchObject(expected)
})

test('the layer of kafkajs that is not public is what its declarations here say', async () => {
  expect(require('kafkajs/package.json').version).toBe('2.2.4')
  const client = createKafkaClient(parseKafkaAddress(address()))
  const cluster = client.cluster()
  await cluster.connect()
  await cluster.refreshMetadata()
  const { brokers } = await cluster.metadata({ topics: [] })
  const broker = await cluster.findBroker({ nodeId: brokers[0]!.nodeId })
  for (const call of [
    'fetch',
    'listOffsets',
    'findGroupCoordinator',
    'joinGroup',
    'syncGroup',
    'heartbeat',
    'leaveGroup',
    'offsetCommit',
    'offsetFetch',
  ]) {
    expect(typeof (broker as unknown as Record<string, unknown>)[call]).toBe('function')
  }
  expect(broker.versions[1]!.maxVersion).toBeGreaterThanOrEqual(10)
  await cluster.disconnect()
  client.destroy()
})
