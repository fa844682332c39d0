/**
 * Three brokers, replication 3, min.insync 2: what a broker that dies, hangs or comes back does to a stream. Nothing that
 * was acknowledged is lost, the order in a partition is kept, and whoever follows gets all of it.
 */
import { Kafka, logLevel } from 'kafkajs'
import type { Bus, BusRecord } from '../../runtime/bus'
import { openKafkaBus } from '../../runtime/bus/kafka/kafkaBus'
import { codeOf, record, textOf } from '../runtime/bus/contract'
import { type KafkaServers, startKafka } from '../support/kafka'
import { until } from '../support/until'

jest.setTimeout(120_000)

const partitions = 6
let kafka: KafkaServers
const buses: Bus[] = []
beforeAll(async () => {
  kafka = await startKafka({ brokers: 3, heapMb: 256 })
}, 120_000)
afterEach(async () => {
  for (const bus of buses.splice(0)) await bus.close()
})
afterAll(() => kafka?.stop())

let runs = 0
const open = async (settings = ''): Promise<Bus> => {
  const bus = await openKafkaBus(`${kafka.address}?prefix=f${runs}.&sessionTimeoutMs=6000${settings}`)
  buses.push(bus)
  return bus
}
beforeEach(() => {
  runs++
})

const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

interface Stream {
  /** What was acknowledged, by partition, in the order of the calls. */
  readonly acked: string[][]
  stop(): Promise<void>
}

/** Appends without end, several calls at once, to every partition; an append that fails is made again. */
function stream(bus: Bus): Stream {
  const acked: string[][] = Array.from({ length: partitions }, () => [])
  let stopped = false
  const running = acked.map(async (list, partition) => {
    for (let i = 0; !stopped; i++) {
      const texts = Array.from({ length: 5 }, (_, k) => `${partition}:${i}.${k}`)
      try {
        await bus.append(texts.map(text => record('t', 'k', text.padEnd(300), partition)))
        list.push(...texts)
      } catch (thrown) {
        expect(thrown).toMatchObject({ retriable: true })
        i--
      }
      await pause(2)
    }
  })
  return {
    acked,
    async stop() {
      stopped = true
      await Promise.all(running)
    },
  }
}

/** Everything of a partition, each text once and where it stood first: an append that was made again may stand twice. */
async function firsts(bus: Bus, partition: number): Promise<string[]> {
  const texts = new Set<string>()
  for (let at = 0; ; ) {
    const records = await bus.read('t', partition, at)
    const last = records.at(-1)
    if (!last) return [...texts]
    for (const one of records) texts.add(textOf(one).trim())
    at = last.offset + 1
  }
}

async function follow(bus: Bus): Promise<{ readonly seen: BusRecord[]; readonly errors: Error[] }> {
  const seen: BusRecord[] = []
  const errors: Error[] = []
  const onError = (error: Error): void => void errors.push(error)
  const member = await bus.subscribe({ topics: ['t'], group: 'g', from: 'earliest', onError }, async records => {
    seen.push(...records)
    const { topic, partition, offset } = records.at(-1)!
    await member.commit({ topic, partition, offset: offset + 1 }).catch(() => {}) // it may have been thrown out: it comes again
  })
  return { seen, errors }
}

async function checkAll(writer: Bus, acked: readonly (readonly string[])[], seen: readonly BusRecord[]): Promise<void> {
  for (const [partition, list] of acked.entries()) {
    const { next } = await writer.offsets('t', partition)
    const stored = await firsts(writer, partition)
    // All that was acknowledged is there, in order; between them at most what was sent and not acknowledged.
    const known = new Set(list)
    expect(stored.filter(text => known.has(text))).toEqual(list)
    const offsets = () => seen.filter(one => one.partition === partition).map(one => one.offset)
    await until(() => new Set(offsets()).size >= next, 30_000, 50)
    // Without a gap: what was not committed when the group was dealt anew may come again, and nothing is left out.
    let highest = -1
    for (const offset of offsets()) {
      expect(offset).toBeLessThanOrEqual(highest + 1)
      highest = Math.max(highest, offset)
    }
  }
}

/** A stream that a consumer follows, some way in; `before`: how much of each partition was acknowledged by then. */
async function streaming() {
  const bus = await open()
  await bus.createTopics([{ topic: 't', partitions, retentionMs: null }])
  const { seen, errors } = await follow(await open())
  const running = stream(bus)
  await until(() => seen.length > 200, 20_000)
  const before = running.acked.map(list => list.length)
  return { bus, seen, errors, running, before }
}

test('a broker that is killed in the middle of a stream loses nothing that was acknowledged, and no order', async () => {
  const { bus, seen, errors, running, before } = await streaming()
  kafka.brokers[1]!.kill('SIGKILL')
  // Every partition goes on without it, those that it led too.
  await until(() => running.acked.every((list, i) => list.length > before[i]! + 50), 60_000, 50)
  await kafka.brokers[1]!.start()
  await pause(1000)
  await running.stop()
  await checkAll(bus, running.acked, seen)
  expect(errors).toEqual([])
})

test('a broker that hangs and wakes up again costs time, and nothing else', async () => {
  const { bus, seen, errors, running, before } = await streaming()
  kafka.brokers[2]!.kill('SIGSTOP')
  await pause(6000)
  kafka.brokers[2]!.kill('SIGCONT')
  await until(() => running.acked.every((list, i) => list.length > before[i]! + 50), 60_000, 50)
  await running.stop()
  await checkAll(bus, running.acked, seen)
  expect(errors).toEqual([])
})

test('a topic of three copies of which one is enough is refused, with the command that mends it', async () => {
  const topic = `f${runs}.t`
  const admin = new Kafka({ brokers: kafka.address.slice(8).split(','), logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  const configEntries = ['retention.ms=-1', 'min.insync.replicas=1'].map(entry => {
    const [name, value] = entry.split('=')
    return { name: name!, value: value! }
  })
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 3, configEntries }] })
  await admin.disconnect()
  const bus = await open()
  const error = await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }]).catch(thrown => thrown)
  expect(error).toMatchObject({ code: 'bus.topic_mismatch', retriable: false })
  expect(error.message).toContain('min.insync.replicas=1, expected 2')
  expect(error.hint).toContain(`--entity-name ${topic} --add-config min.insync.replicas=2`)
})

test('with one of three replicas left nothing is acknowledged, and the error says why; then it goes on', async () => {
  const bus = await open('&deliveryTimeoutMs=4000')
  await bus.createTopics([{ topic: 't', partitions: 1, retentionMs: null }])
  await bus.append([record('t', 'k', 'before')])
  kafka.brokers[0]!.kill('SIGKILL')
  kafka.brokers[1]!.kill('SIGKILL')
  const code = await codeOf(bus.append([record('t', 'k', 'lost?')]))
  expect(['bus.not_enough_replicas', 'bus.unreachable', 'bus.append_unanswered']).toContain(code)
  await Promise.all([kafka.brokers[0]!.start(), kafka.brokers[1]!.start()])
  await until(
    async () =>
      await bus.append([record('t', 'k', 'after')]).then(
        () => true,
        () => false,
      ),
    60_000,
    200,
  )
  const texts = await bus.read('t', 0, 0).then(records => records.map(textOf))
  expect(texts[0]).toBe('before')
  expect(texts.at(-1)).toBe('after')
})
