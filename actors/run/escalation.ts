/**
 * Escalation: decides what a supervisor does when one of its children has used up its restarts.
 *
 * in   the child's plan and error, how many siblings do the same work, how often the child has paused
 * out  rest (the child pauses and is started again later), or escalate (the supervisor reports to its own supervisor)
 * Invariant: pure. A child pauses only while a sibling can take its work; an error that every sibling would meet
 * escalates.
 */
import { TroupeError } from '../../runtime/errors'

/**
 * rest: the child pauses, since siblings do the same work (engines). escalate: nothing else does the child's work
 * (owners, scheduler, trainer).
 */
export type WhenGivenUp = 'rest' | 'escalate'

export interface GivenUp {
  readonly error: Error
  readonly plan: WhenGivenUp
  /** True if the child was never up and its error is not retriable: the recipe or the machine is wrong. */
  readonly isHopeless: boolean
  /** Number of siblings with the same work that are up or starting. */
  readonly siblings: number
  /** Number of earlier pauses of this child. */
  readonly rests: number
}

export type Escalation = { readonly do: 'rest'; readonly afterMs: number } | { readonly do: 'escalate' }

/** Error boundaries whose errors every sibling would meet as well. */
const common: ReadonlySet<string> = new Set(['bus', 'config'])
const firstRestMs = 60_000
const longestRestMs = 600_000

export function onGivenUp({ error, plan, isHopeless, siblings, rests }: GivenUp): Escalation {
  const isCommon = error instanceof TroupeError && common.has(error.boundary)
  if (plan === 'escalate' || isHopeless || isCommon || siblings === 0) return { do: 'escalate' }
  return { do: 'rest', afterMs: Math.min(longestRestMs, firstRestMs * 2 ** rests) }
}
