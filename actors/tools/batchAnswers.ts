/**
 * Batches the answers of an executor: calls that end within a few milliseconds are recorded in one append, with one report
 * to the dispatcher.
 *
 * in   answers, one a call      out  for the first call of a batch all of its messages, for the others nothing
 * Invariant: an answer that follows none for `windowMs` is not delayed; another one waits at most that long.
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
 * @param ended builds the report that these calls have ended
 * @returns a function that takes a call's answer and its key, and resolves with what is to be appended for it
 */
export function batchAnswers(
  windowMs: number,
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
    const waitMs = flushedAt + windowMs - performance.now()
    if (waitMs > 0) await new Promise(resolve => setTimeout(resolve, waitMs))
    open = undefined
    flushedAt = performance.now()
    return { facts: batch.facts, commands: [...batch.commands, ended(batch.keys)] }
  }
}
