/**
 * A position in a run's log, `topic:partition:offset`, as people write it with --at.
 */
import type { RunId } from '../../messages/ids'
import { type TopicName, topicOnBus, topics } from '../../messages/topics'
import type { Bus } from '../../runtime/bus/bus'
import { TroupeError } from '../../runtime/errors'

export interface Place {
  readonly topic: TopicName
  readonly partition: number
  readonly offset: number
}

export const placeText = ({ topic, partition, offset }: Place): string => `${topic}:${partition}:${offset}`

/** Parses a position. @throws TroupeError replay.bad_place */
export function placeOf(text: string): Place {
  const match = /^([a-z-]+):(\d{1,9}):(\d{1,15})$/.exec(text)
  const topic = match?.[1] as TopicName | undefined
  if (topic !== undefined && topic in topics) return { topic, partition: Number(match![2]), offset: Number(match![3]) }
  throw new TroupeError('replay.bad_place', {
    boundary: 'replay',
    retriable: false,
    message: `--at '${text.slice(0, 80)}' is not a position in a log`,
    hint: `write topic:partition:offset, as in trajectories:0:42; topics: ${Object.keys(topics).join(', ')}`,
  })
}

/**
 * Returns when the record at a position was written, in ms since 1970. @throws TroupeError replay.bad_place when the
 * log has no record there
 */
export async function timeOf(bus: Bus, run: RunId, at: Place): Promise<number> {
  const name = topicOnBus(run, at.topic)
  const there = (await bus.listTopics()).find(t => t.topic === name)
  const bounds = there && at.partition < there.partitions ? await bus.offsets(name, at.partition) : undefined
  const isWithin = bounds !== undefined && at.offset >= bounds.oldest && at.offset < bounds.next
  if (isWithin) {
    const [record] = await bus.read(name, at.partition, at.offset, 1)
    if (record?.offset === at.offset) return record.timestamp
  }
  const range =
    bounds &&
    (bounds.next > bounds.oldest
      ? `the partition holds offsets ${bounds.oldest} to ${bounds.next - 1}`
      : 'the partition is empty')
  throw new TroupeError('replay.bad_place', {
    boundary: 'replay',
    retriable: false,
    message: `the record ${placeText(at)} is not in the log of run '${run}'`,
    hint: isWithin
      ? `${range}, but this record is missing: \`troupe replay verify\` lists what is missing`
      : (range ?? `the run has ${there?.partitions ?? 0} partitions of the topic '${at.topic}'`),
  })
}
