/**
 * Follows a run and delivers every message that counts to dashboards and progress displays.
 *
 * in   a run's journal
 * out  each fact once, in the order of its partition: first what the log holds, then new ones; of `telemetry` only new
 * messages
 * Invariant: a message whose writer a later owner, learner or curriculum had replaced is left out (fencing).
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { fence } from '../../actors/ownership/fencing'
import type { EngineTelemetry } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import { systemEffects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'

/** Milliseconds for which new messages are batched; a person sees no difference below this. */
const lingerMs = 20
/** Upper bound in ms on the wait, on closing, for the messages that are already in the log. */
const catchUpMs = 5000

const watched = ['trajectories', 'runs', 'learner'] as const
/** Receives one message. `live`: false for messages that the log held when the watch began, true for later ones. */
export type Take = (message: Fact | EngineTelemetry, live: boolean) => void

/**
 * Reads the log topic after topic, then follows it. Resolves, once the log is read, with a function that waits (at most
 * 5 s) until every fact in the log has been delivered and then closes the follower. `onError` gets the error that
 * ends the follower.
 */
export async function watchRun(
  journal: Journal,
  take: Take,
  onError: (error: Error) => void,
): Promise<() => Promise<void>> {
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
      group: `watch.${systemEffects.unique()}`,
      lingerMs,
      feeds: [...watched.map(topic => ({ topic, from: 'oldest' as const })), { topic: 'telemetry', from: 'latest' }],
      onError,
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
