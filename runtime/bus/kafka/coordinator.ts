/**
 * Finds the coordinator of a consumer group: the broker that keeps its members and offsets.
 *
 * in   a group, the known brokers      out  the coordinator
 * Invariant: a refusal is reported at once. kafkajs's own look-up ignores every answer except success, so that a user
 * without rights on groups would wait although a broker has answered.
 */
import { TroupeError } from '../../errors'
import { passesByItself } from './errors'
import type { KafkaBroker, KafkaCluster } from './protocol'

const coordinatorOfGroup = 0

/**
 * Returns the coordinator; asks connected brokers first. Rejects with kafkajs's error: the first permanent one, else
 * the last transient one; with bus.unreachable when no broker is known.
 */
export async function findCoordinator(cluster: KafkaCluster, groupId: string): Promise<KafkaBroker> {
  const { brokers } = cluster.brokerPool
  const isAway = (nodeId: string) => (brokers[nodeId]?.isConnected() ? 0 : 1)
  let fault: unknown = noBroker(groupId)
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

function noBroker(groupId: string): TroupeError {
  return new TroupeError('bus.unreachable', {
    boundary: 'bus',
    retriable: true,
    message: `no broker is known that could name the coordinator of the group ${groupId}`,
    hint: 'check that the brokers run',
  })
}
