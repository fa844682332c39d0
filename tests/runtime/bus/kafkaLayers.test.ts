/** What the layers of the Kafka driver do about a broker's faults, by a cluster that has them; tests/kafka has a real one. */
import type { KafkaClient } from '../../../runtime/bus/kafka/client'
import { findCoordinator } from '../../../runtime/bus/kafka/coordinator'
import type { KafkaBroker, KafkaCluster } from '../../../runtime/bus/kafka/protocol'
import { KafkaReader } from '../../../runtime/bus/kafka/reader'
import { KafkaTail } from '../../../runtime/bus/kafka/tail'
import { until } from '../../support/until'

const fault = (name: string, type?: string) => Object.assign(new Error(name), { name, ...(type ? { type } : {}) })
const away = () => fault('KafkaJSConnectionError')

/** Brokers 0, 1, … of which each is what it does when asked for anything. */
function clusterOf(...brokers: readonly (() => Promise<unknown>)[]): KafkaCluster {
  const broker = (nodeId: number) => {
    const asked = () => brokers[nodeId]!()
    return { nodeId, versions: {}, findGroupCoordinator: asked, fetch: asked, listOffsets: asked }
  }
  return {
    brokerPool: { brokers: Object.fromEntries(brokers.map((_, k) => [k, { isConnected: () => true }])) },
    findBroker: async ({ nodeId }: { nodeId: number | string }) => broker(Number(nodeId)),
    addMultipleTargetTopics: async () => {},
    refreshMetadata: async () => {},
    findTopicPartitionMetadata: () => [{ partitionId: 0, leader: 0 }],
  } as unknown as KafkaCluster
}
const refuses = (error: Error) => async () => {
  throw error
}

test('who keeps a group is asked of the next broker where one is away; one that denies it is heard at once', async () => {
  const knows = async () => ({ coordinator: { nodeId: 1 } })
  const found = await findCoordinator(clusterOf(refuses(away()), knows), 'g')
  expect((found as KafkaBroker & { nodeId: number }).nodeId).toBe(1)
  const denied = fault('KafkaJSProtocolError', 'GROUP_AUTHORIZATION_FAILED')
  const cluster = clusterOf(refuses(away()), refuses(denied), knows)
  await expect(findCoordinator(cluster, 'g')).rejects.toBe(denied)
  const gone = away()
  await expect(findCoordinator(clusterOf(refuses(gone)), 'g')).rejects.toBe(gone)
  await expect(findCoordinator(clusterOf(), 'g')).rejects.toMatchObject({ code: 'bus.unreachable', retriable: true })
  const client = { brokers: ['b:1'], settings: {} } as unknown as KafkaClient
  const reader = new KafkaReader(client, cluster, name => name)
  await expect(reader.committed('g', 't', 0)).rejects.toMatchObject({ code: 'bus.denied', retriable: false })
})

test('a consumer that is behind fails when its time is over, and not before', async () => {
  const client = { brokers: ['b:1'], settings: { stallTimeoutMs: 1000 } } as unknown as KafkaClient
  let tries = 0
  const cluster = clusterOf(async () => {
    tries++
    throw away()
  })
  const reader = new KafkaReader(client, cluster, name => name)
  const tail = new KafkaTail(client, cluster, reader)
  const failed: unknown[] = []
  const begun = performance.now()
  const onFailure = (thrown: unknown) => failed.push(thrown)
  tail.add({ topic: 't', partition: 0, begin: 0, take: () => true, onFailure }).wake()
  await until(() => failed.length > 0, 20_000)
  expect(failed).toMatchObject([{ code: 'bus.unreachable', retriable: true }])
  expect(performance.now() - begun).toBeGreaterThan(990)
  expect(tries).toBeGreaterThan(3)
  reader.close()
  await tail.close()
}, 40_000)
