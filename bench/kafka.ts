/**
 * Compares the Kafka bus with kafkajs itself, on one broker that the benchmark starts: appends and consuming, 1 KiB and
 * 6 KiB records.
 *
 * Both arms have the same producers, each of which waits for its call's records before the next call, the same records
 * per call, an idempotent producer with all acknowledgements, and the same topic settings. The raw arm batches as the
 * bus does: calls made while a request is on its way go into the next request. The arms alternate block by block;
 * medians are compared. Latency is measured from append to handled, at 500 turn events a second, in one process.
 */
import { Kafka, logLevel, type Message } from 'kafkajs'
import { type Bus, openKafkaBus } from '../runtime/bus'
import { type KafkaServers, startKafka } from '../tests/support/kafka'
import { atLeast, atMost, type BenchReport, describeMachine, median, printReport } from './report'
import { headersOf } from './support/turnHeaders'

const partitions = 8
const producers = 64
const recordsPerCall = 8
const callsEach = 8
const blocks = 9
/** Number of warm-up blocks of each kind. They are not counted, because the JIT compilers still work on them. */
const warmUpBlocks = 3
const sizes = [1024, 6 * 1024] as const
const eventsPerSecond = 500
const latencySeconds = 8

interface Arm {
  append(producer: number, index: number, value: Buffer): Promise<unknown>
  /** Consumes all records from the beginning under a new consumer group; returns their size in bytes. */
  consume(group: string, records: number): Promise<number>
  close(): Promise<void>
}

async function busArm(address: string, topic: string): Promise<Arm> {
  const bus: Bus = await openKafkaBus(address)
  await bus.createTopics([{ topic, partitions, retentionMs: null }])
  return {
    append: (producer, index, value) =>
      bus.append(
        Array.from({ length: recordsPerCall }, (_, k) => ({
          topic,
          key: `group-${producer}`,
          headers: headersOf(producer, index * recordsPerCall + k),
          value,
          partition: producer % partitions,
        })),
      ),
    async consume(group, records) {
      let count = 0
      let bytes = 0
      let done = (): void => {}
      const all = new Promise<void>(resolve => {
        done = resolve
      })
      const onError = (error: Error): never => {
        throw error
      }
      const member = await bus.subscribe({ topics: [topic], group, from: 'earliest', onError }, async batch => {
        for (const record of batch) bytes += record.value.length + record.headers.type!.length
        count += batch.length
        if (count >= records) done()
      })
      await all
      await member.close()
      return bytes
    },
    close: () => bus.close(),
  }
}

async function rawArm(broker: string, topic: string): Promise<Arm> {
  const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({
    idempotent: true,
    createPartitioner:
      () =>
      ({ message }) =>
        message.partition!,
  })
  await producer.connect()
  const waiting: { readonly messages: readonly Message[]; readonly done: (error?: Error) => void }[] = []
  let sending = false
  const flush = async (): Promise<void> => {
    sending = true
    while (waiting.length > 0) {
      // Limits a request to 1 MiB per partition, which is the most that a broker accepts.
      const calls = waiting.splice(
        0,
        Math.floor(7e6 / (recordsPerCall * Math.max(1, waiting[0]!.messages[0]!.value!.length))),
      )
      try {
        await producer.sendBatch({
          acks: -1,
          topicMessages: [{ topic, messages: calls.flatMap(call => call.messages) }],
        })
        for (const { done } of calls) done()
      } catch (thrown) {
        for (const { done } of calls) done(thrown as Error)
      }
    }
    sending = false
  }
  return {
    append: (of, index, value) =>
      new Promise<void>((resolve, reject) => {
        const messages = Array.from({ length: recordsPerCall }, (_, k) => ({
          key: `group-${of}`,
          headers: headersOf(of, index * recordsPerCall + k),
          value,
          partition: of % partitions,
        }))
        waiting.push({ messages, done: error => (error ? reject(error) : resolve()) })
        if (!sending) setImmediate(() => sending || void flush())
      }),
    async consume(groupId, records) {
      const consumer = kafka.consumer({ groupId, maxBytesPerPartition: 2 * 1024 * 1024, maxWaitTimeInMs: 100 })
      await consumer.connect()
      await consumer.subscribe({ topic, fromBeginning: true })
      let count = 0
      let bytes = 0
      await new Promise<void>(resolve => {
        void consumer.run({
          partitionsConsumedConcurrently: partitions,
          eachBatch: async ({ batch }) => {
            for (const { value, headers } of batch.messages) bytes += value!.length + String(headers!.type).length
            count += batch.messages.length
            if (count >= records) resolve()
          },
        })
      })
      await consumer.disconnect()
      return bytes
    },
    close: () => producer.disconnect(),
  }
}

/** Median milliseconds of each arm over `blocks` blocks. The arms alternate in going first. */
async function compare(arms: Arms, act: (arm: Arm, block: number) => Promise<unknown>): Promise<Record<Name, number>> {
  const ms: Record<Name, number[]> = { bus: [], raw: [] }
  for (let block = 0; block < blocks + warmUpBlocks; block++) {
    for (const name of block % 2 === 0 ? (['bus', 'raw'] as const) : (['raw', 'bus'] as const)) {
      const began = performance.now()
      await act(arms[name], block)
      if (block >= warmUpBlocks) ms[name].push(performance.now() - began)
    }
  }
  return { bus: median(ms.bus), raw: median(ms.raw) }
}

type Name = 'bus' | 'raw'
type Arms = Readonly<Record<Name, Arm>>

async function compareSize(
  kafka: KafkaServers,
  size: number,
): Promise<Record<'append' | 'consume', Record<Name, number>>> {
  const value = Buffer.alloc(size, 'abcdefg')
  const topics = { bus: `bus-${size}`, raw: `raw-${size}` }
  const bus = await busArm(kafka.address, topics.bus)
  const twin = await busArm(kafka.address, topics.raw) // opening a bus makes the raw arm's topic with the same settings
  await twin.close()
  const arms = { bus, raw: await rawArm(kafka.address.slice('kafka://'.length), topics.raw) }
  const append = await compare(arms, arm =>
    Promise.all(
      Array.from({ length: producers }, async (_, producer) => {
        for (let index = 0; index < callsEach; index++) await arm.append(producer, index, value)
      }),
    ),
  )
  const records = producers * callsEach * recordsPerCall * (blocks + warmUpBlocks)
  const consume = await compare(arms, async (arm, block) => {
    const bytes = await arm.consume(`g${size}-${block}`, records)
    if (bytes !== records * (size + 'turn.completed'.length))
      throw new Error(`consumed ${bytes} bytes, which differs from the bytes that were appended`)
  })
  await arms.bus.close()
  await arms.raw.close()
  const perSecond = (ms: number, count: number) => (count / ms) * 1000
  return {
    append: {
      bus: perSecond(append.bus, producers * callsEach * recordsPerCall),
      raw: perSecond(append.raw, producers * callsEach * recordsPerCall),
    },
    consume: { bus: perSecond(consume.bus, records), raw: perSecond(consume.raw, records) },
  }
}

async function latency(address: string): Promise<readonly number[]> {
  const bus = await openKafkaBus(address)
  await bus.createTopics([{ topic: 'latency', partitions, retentionMs: null }])
  const sent = new Map<string, number>()
  const ms: number[] = []
  const onError = (error: Error): never => {
    throw error
  }
  await bus.subscribe({ topics: ['latency'], group: 'g', from: 'earliest', onError }, async records => {
    const now = performance.now()
    for (const { headers } of records) ms.push(now - sent.get(headers.turn!)!)
  })
  const value = Buffer.alloc(6 * 1024)
  const began = performance.now()
  const appends: Promise<unknown>[] = []
  for (let i = 0; i < eventsPerSecond * latencySeconds; i++) {
    const due = began + (i * 1000) / eventsPerSecond
    while (performance.now() < due) await new Promise(resolve => setTimeout(resolve, 1))
    sent.set(String(i), performance.now())
    appends.push(bus.append([{ topic: 'latency', key: `group-${i % 64}`, headers: headersOf(0, i), value }]))
  }
  await Promise.all(appends)
  while (ms.length < sent.size) await new Promise(resolve => setTimeout(resolve, 10))
  await bus.close()
  return ms.slice(eventsPerSecond).sort((a, b) => a - b) // the first second is warm-up
}

export async function bench(): Promise<BenchReport> {
  const kafka = await startKafka({ heapMb: 1024 })
  try {
    const metrics: Record<string, number> = { producers, recordsPerCall, partitions }
    const budgets = []
    for (const size of sizes) {
      const { append, consume } = await compareSize(kafka, size)
      const kib = `${size / 1024} KiB`
      for (const [what, figures] of [
        ['Append', append],
        ['Consume', consume],
      ] as const) {
        metrics[`bus${what}${size}PerSecond`] = figures.bus
        metrics[`raw${what}${size}PerSecond`] = figures.raw
        budgets.push(atLeast(`${what.toLowerCase()} of ${kib}, share of raw kafkajs`, figures.bus / figures.raw, 0.8))
      }
    }
    const ms = await latency(kafka.address)
    const at = (share: number): number => ms[Math.floor(ms.length * share)]!
    metrics.eventsPerSecond = eventsPerSecond
    budgets.push(atMost('append to handled, p50 ms', at(0.5), 15), atMost('append to handled, p99 ms', at(0.99), 60))
    return { bench: 'kafka', machine: describeMachine(), metrics, budgets }
  } finally {
    await kafka.stop()
  }
}

if (require.main === module) {
  void bench().then(report => {
    process.exitCode = printReport(report, process.argv.includes('--json'))
  })
}
