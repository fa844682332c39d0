/**
 * Raw records with their positions: those of one trajectory, and those of one partition of a topic.
 *
 * in   an opened run; a trajectory, or a topic and a partition        out  one page of records
 * Invariant: records that did not count (stale, repeated, of a former owner) are listed too. In the list of a
 * trajectory `counts` is false for these; in the list of a partition it is always true.
 */
import { type TopicName, topicOnBus, topics } from '../../../messages/topics'
import { factLine } from '../../../replay/factLine'
import { placeText } from '../../../replay/log/place'
import { replayError } from '../../../replay/replayError'
import { showTrajectory } from '../../../replay/trajectories/showTrajectory'
import type { Entry } from '../../../runtime/journal/journal'
import type { EventLine, Paged } from '../../api'
import { type CommandPlace, commandOf } from '../commands'
import type { OpenedRun } from '../openedRun'
import { shownJson } from '../shownText'
import type { PageOf } from './lists'

export async function trajectoryEvents(
  run: OpenedRun,
  place: CommandPlace,
  asked: string,
  { offset, limit }: PageOf,
): Promise<Paged<EventLine>> {
  const { trajectory, entries } = await showTrajectory(run.recorded, asked)
  return {
    ...{ total: entries.length, offset },
    rows: entries.slice(offset, offset + limit).map(entry => eventLine(entry, entry.counts)),
    command: commandOf(place, 'replay', 'show', trajectory, '--json'),
  }
}

/** `offset` is the log offset of the page's first record; `total` is that of the next record to be written. */
export async function topicEvents(
  run: OpenedRun,
  place: CommandPlace,
  asked: string,
  partition: number,
  { offset, limit }: PageOf,
): Promise<Paged<EventLine> & { readonly oldest: number }> {
  const { recorded } = run
  if (!(asked in topics) || partition >= recorded.partitionsOf(asked as TopicName))
    throw replayError(
      'bad_place',
      `the run has no partition ${partition} of the topic '${asked.slice(0, 40)}'`,
      `the page's Cluster view lists topics and partitions; topics: ${Object.keys(topics).join(', ')}`,
    )
  const topic = asked as TopicName
  const { oldest, next } = await recorded.bus.offsets(topicOnBus(recorded.run, topic), partition)
  const from = Math.max(oldest, Math.min(offset, next))
  const wanted = Array.from({ length: Math.max(0, Math.min(limit, next - from)) }, (_, i) => ({
    partition,
    offset: from + i,
  }))
  const rows: EventLine[] = []
  await recorded.pick(topic, wanted, entry => rows.push(eventLine(entry, true)))
  return {
    ...{ total: next, offset: from, oldest, rows },
    command: commandOf(place, 'replay', 'follow', '--until-end', '--json'),
  }
}

const eventLine = (entry: Entry, counts: boolean): EventLine => ({
  place: placeText(entry),
  at: 'at' in entry.message ? entry.message.at : entry.timestamp,
  type: entry.message.type,
  counts,
  line: factLine(entry.message).replace(/\s+/g, ' '),
  json: shownJson(entry.message),
})
