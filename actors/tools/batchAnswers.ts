/**
 * Batches the answers of an executor: calls that end within a few milliseconds are recorded in one append, with one
 * report to the dispatcher.
 *
 * in   answers, one per call    out  for the first call of a batch all of the batch's messages, for the others nothing
 * Invariant: an answer that comes the window's time or more after the end of the latest batch is not delayed; any other
 * waits until that time has passed. The window is asked for at the first answer of each batch.
 */

import type { Command } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import type { Decision } from '../../runtime/host/behaviour'

interface Batch {
  readonly facts: Fact[]
  readonly commands: Command[]
  readonly keys: string[]
}

/**
 * Makes a function that takes a call's answer and its key. It resolves with the messages of the whole batch for the
 * first call of a batch, and with undefined for the others.
 * @param windowMs returns the minimum time in ms between the ends of two batches
 * @param ended builds the report to the dispatcher that the calls with these keys have ended
 */
export function batchAnswers(
  windowMs: () => number,
  ended: (keys: readonly string[]) => Command,
): (answer: Decision, key: string) => Promise<Decision | undefined> {
  let open: Batch | undefined
  let flushedAt = Number.NEGATIVE_INFINITY

  return async ({ facts, commands }, key) => {
    const isFirst = open === undefined
    open ??= { facts: [], commands: [], keys: [] }
    const batch = open
    batch.facts.push(...facts)
    batch.commands.push(...commands)
    batch.keys.push(key)
    if (!isFirst) return undefined
    const waitMs = flushedAt + windowMs() - performance.now()
    if (waitMs > 0) await new Promise(resolve => setTimeout(resolve, waitMs))
    open = undefined
    flushedAt = performance.now()
    return { facts: batch.facts, commands: [...batch.commands, ended(batch.keys)] }
  }
}
