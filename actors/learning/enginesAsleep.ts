/**
 * Waits until all engines of a run sleep, by the facts in the log: for a trainer whose engines are in other processes.
 *
 * in   engine.joined | left | slept | woke, weights.applied        out  a promise
 * Invariant: when the promise resolves, at least one engine has joined, and every engine that has joined and not left
 * sleeps. A trainer in the engines' own process waits for the engines' GPU leases instead (deviceLeases.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Journal } from '../../runtime/journal/journal'

const pollMs = 250

/** Resolves when at least one engine has joined and all joined engines sleep. Rejects when the signal aborts. */
export async function enginesAsleep(journal: Pick<Journal, 'offsets' | 'readTo'>, signal: AbortSignal): Promise<void> {
  const asleep = new Map<string, boolean>()
  for (let read = 0; ; ) {
    const { next } = await journal.offsets('runs', 0)
    for await (const entries of journal.readTo('runs', 0, read, next)) {
      for (const { message } of entries) {
        if (message.type === 'engine.left') asleep.delete(message.engine)
        else if (message.type === 'engine.slept') asleep.set(message.engine, true)
        else if (
          message.type === 'engine.joined' ||
          message.type === 'engine.woke' ||
          message.type === 'weights.applied'
        )
          asleep.set(message.engine, false)
      }
    }
    read = next
    if (asleep.size > 0 && [...asleep.values()].every(Boolean)) return
    await sleep(pollMs, undefined, { signal })
  }
}
