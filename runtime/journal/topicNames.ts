/**
 * Checks topics to which the user gave another name on the bus, and computes the partitions that a run asks for.
 */
import { type TopicSpec, topics } from '../../messages'
import { TroupeError } from '../errors'
import type { TopicsOnBus } from './journal'

/**
 * Returns the number of partitions with which the run opens a topic. @param wanted the run's own choice
 * @param own partition count of the topic if the user created it
 */
export function partitionsFor(topic: TopicSpec, wanted: number, own: number | undefined): number {
  if (topic.single && !topic.ownMayBeMany) return 1
  return own ?? (topic.single ? 1 : wanted)
}

/**
 * Checks the names of the user's topics. @param distinct number of different names on the bus
 * @throws TroupeError config.topic_unknown for a topic that the journal does not have; config.topics_collide when two
 * topics would have one name
 */
export function checkTopicNames(names: TopicsOnBus, distinct: number): void {
  const common = { boundary: 'config', retriable: false } as const
  const known = Object.keys(topics)
  const unknown = Object.keys(names).find(topic => !known.includes(topic))
  if (unknown !== undefined) {
    const message = `the journal has no topic '${unknown}'`
    throw new TroupeError('config.topic_unknown', { ...common, message, hint: `use one of ${known.join(', ')}` })
  }
  if (distinct === known.length) return
  const named = Object.entries(names).map(([topic, name]) => `${topic}: ${name}`)
  throw new TroupeError('config.topics_collide', {
    ...common,
    message: `two topics have the same name on the bus: ${named.join(', ')}`,
    hint: 'give each topic a name of its own',
  })
}
