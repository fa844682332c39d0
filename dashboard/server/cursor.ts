/**
 * Positions in all fact topics of a run as one text: the `id` of a stream's events.
 *
 * in   the next offset to read of each partition        out  `runs:0:12,trajectories:0:88,…`, and back
 */
import type { TopicName } from '../../messages/topics'
import { type Place, placeOf, placeText } from '../../replay/log/place'
import type { RecordedRun } from '../../replay/log/recordedRun'

export const streamed = ['runs', 'learner', 'trajectories'] as const satisfies readonly TopicName[]

export const cursorOf = (places: readonly Place[]): string => places.map(placeText).join(',')

/** Parses a cursor. @throws TroupeError replay.bad_place */
export const placesOf = (cursor: string): readonly Place[] => cursor.split(',').map(placeOf)

/** Returns the offset at which each partition ends now. */
export async function endsOf(recorded: RecordedRun): Promise<readonly Place[]> {
  const places: Place[] = []
  for (const topic of streamed) {
    for (let partition = 0; partition < recorded.partitionsOf(topic); partition++)
      places.push({ topic, partition, offset: await recorded.endOf(topic, partition) })
  }
  return places
}
