/** The Kafka bus keeps the contract of every bus, against a real broker. */
import { openKafkaBus } from '../../runtime/bus/kafka/kafkaBus'
import { busContract } from '../runtime/bus/contract'
import { type KafkaServers, startKafka } from '../support/kafka'

jest.setTimeout(60_000)

let kafka: KafkaServers
beforeAll(async () => {
  kafka = await startKafka()
})
afterAll(() => kafka?.stop())

let storages = 0
busContract({
  name: 'kafka',
  durable: true,
  start: async () => {
    // One broker for all tests: the names of each begin alike and are its own.
    const prefix = `c${storages++}.`
    return { open: () => openKafkaBus(`${kafka.address}?prefix=${prefix}`), remove: async () => {} }
  },
})
