/**
 * Assigns partitions to the members of a consumer group, as a pure function.
 *
 * in   members with their topics, partition counts, current owners      out  an owner for each partition
 * Invariants: every partition of a subscribed topic goes to exactly one subscriber of that topic. Within a topic, the
 * partition counts of its subscribers differ by at most one. A partition moves only when its owner no longer subscribes
 * or when balance requires it, since each move makes the new owner rebuild its state from the log.
 */
export interface GroupMember {
  readonly id: number
  readonly topics: readonly string[]
}

export interface TopicPartition {
  readonly topic: string
  readonly partition: number
}

export const keyOf = (topic: string, partition: number): string => `${topic}/${partition}`

/**
 * Computes the owners. A current owner that still subscribes keeps its partitions up to its share; the other partitions
 * go one by one to the subscriber with the fewest partitions of that topic; among equals, to the one with the fewest in
 * all.
 * @param members in the order in which they joined
 * @param current owner's id by partition key
 */
export function assignPartitions(
  members: readonly GroupMember[],
  partitionsOf: (topic: string) => number,
  current: ReadonlyMap<string, number>,
): Map<string, { readonly owner: number; readonly at: TopicPartition }> {
  const result = new Map<string, { owner: number; at: TopicPartition }>()
  const total = new Map<number, number>(members.map(member => [member.id, 0]))
  const topics = [...new Set(members.flatMap(member => member.topics))].sort()
  for (const topic of topics) {
    const subscribers = members.filter(member => member.topics.includes(topic)).map(member => member.id)
    const count = partitionsOf(topic)
    const share = Math.floor(count / subscribers.length)
    let extras = count % subscribers.length
    const held = new Map<number, number>(subscribers.map(id => [id, 0]))
    const give = (partition: number, owner: number): void => {
      result.set(keyOf(topic, partition), { owner, at: { topic, partition } })
      held.set(owner, held.get(owner)! + 1)
      total.set(owner, total.get(owner)! + 1)
    }
    const free: number[] = []
    for (let partition = 0; partition < count; partition++) {
      const owner = current.get(keyOf(topic, partition))
      const has = owner === undefined ? undefined : held.get(owner)
      if (owner !== undefined && has !== undefined && has < share) give(partition, owner)
      else if (owner !== undefined && has === share && extras > 0) {
        extras--
        give(partition, owner)
      } else free.push(partition)
    }
    for (const partition of free) {
      let least = subscribers[0]!
      for (const id of subscribers) {
        const difference = held.get(id)! - held.get(least)! || total.get(id)! - total.get(least)!
        if (difference < 0) least = id
      }
      give(partition, least)
    }
  }
  return result
}
