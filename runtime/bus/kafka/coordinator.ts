/**
 * The broker that keeps a group: its members and its offsets.
 *
 * in   a group, the brokers that are known      out  its coordinator
 * Invariant: a broker that refuses to say is heard. kafkajs's own look-up passes over every answer but the one it wants, so
 * that a user without rights on groups would wait for a broker that has answered.
 */
import { TroupeError } from '../../errors'
import type { KafkaBroker, KafkaCluster } from './client'
import { passesByItself } from './errors'

const coordinatorOfGroup = 0

/** Asks those first that are connected. Rejects with kafkajs's error, of the last one where all have faults that pass. */
export async function findCoordinator(cluster: KafkaCluster, groupId: string): Promise<KafkaBroker> {
  const { brokers } = cluster.brokerPool
  const isAway = (nodeId: string) => (brokers[nodeId]?.isConnected() ? 0 : 1)
  let fault: unknown = noBroker()
  for (const nodeId of Object.keys(brokers).sort((a, b) => isAway(a) - isAway(b))) {
    try {
      const broker = await cluster.findBroker({ nodeId })
      const { coordinator } = await broker.findGroupCoordinator({ groupId, coordinatorType: coordinatorOfGroup })
      return await cluster.findBroker({ nodeId: coordinator.nodeId })
    } catch (thrown) {
      if (!passesByItself(thrown)) throw thrown
      fault = thrown
    }
  }
  throw fault
}

function noBroker(): TroupeError {
  return new TroupeError('bus.unreachable', {
    boundary: 'bus',
    retriable: true,
    message: 'no broker is known that could say who keeps a group',
    hint: 'check that the brokers run',
  })
}
