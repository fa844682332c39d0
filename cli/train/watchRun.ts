/**
 * Every message of a run that counts, from its first, for who shows it or counts it.
 *
 * in   a run's journal        out  each message once, in the order of its partition: what an earlier process left, then what comes;
 *      nothing that a process said whose part another had taken over
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { fence } from '../../actors/ownership/fencing'
import type { EngineTelemetry } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import { systemEffects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'

/** What a person watches need not move oftener. */
const lingerMs = 20
/** How long the end of a run waits for its last facts to be shown. */
const catchUpMs = 5000

const watched = ['trajectories', 'runs', 'learner'] as const
/** `live`: it came after the beginning of the watch. */
export type Take = (message: Fact | EngineTelemetry, live: boolean) => void

/**
 * Every message of the run that counts, from its first: what an earlier process left, topic after topic, then what comes.
 * The function that it gives back waits until all that is in the log was taken, and ends it.
 */
export async function watchRun(journal: Journal, take: Take): Promise<() => Promise<void>> {
  const seen = new Map<string, number>()
  const counts = fence()
  const places = async () => {
    const found: (readonly [(typeof watched)[number], number])[] = []
    for (const topic of watched) {
      for (let p = 0; p < (await journal.partitionsOf(topic)); p++) found.push([topic, p])
    }
    return found
  }
  for (const [topic, partition] of await places()) {
    const { oldest, next } = await journal.offsets(topic, partition)
    for await (const entries of journal.readTo(topic, partition, oldest, next)) {
      for (const entry of entries) if (counts(entry)) take(entry.message as Fact, false)
    }
    seen.set(`${topic}#${partition}`, next)
  }
  const following = await journal.follow(
    {
      group: `train-view.${systemEffects.unique()}`,
      lingerMs,
      feeds: [...watched.map(topic => ({ topic, from: 'oldest' as const })), { topic: 'telemetry', from: 'latest' }],
      onError: error => process.stderr.write(`progress is no longer shown: ${error.message}\n`),
    },
    async entries => {
      for (const entry of entries) {
        const { message, topic, partition, offset } = entry
        const place = `${topic}#${partition}`
        if (offset < (seen.get(place) ?? 0)) continue
        seen.set(place, offset + 1)
        if (counts(entry)) take(message as Fact | EngineTelemetry, true)
      }
    },
  )
  return async () => {
    const deadline = systemEffects.elapsed() + catchUpMs
    for (const [topic, partition] of await places()) {
      const { next } = await journal.offsets(topic, partition)
      while ((seen.get(`${topic}#${partition}`) ?? 0) < next && systemEffects.elapsed() < deadline) await sleep(20)
    }
    await following.close()
  }
}
