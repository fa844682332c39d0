/**
 * Escalation as a decision: what a supervisor does when one of its children has used up its restarts.
 *
 * in   the child's plan and error, how many siblings do its work, how often the child has rested
 * out  the child rests and is started again later, or the supervisor escalates to its own
 * Invariant: pure. A child rests only while a sibling can take its work; an error that no other child could avoid escalates.
 */
import { TroupeError } from '../../runtime/errors'

/** rest: siblings do the same work (engines). escalate: nothing else does the child's work (owners, scheduler, trainer). */
export type WhenGivenUp = 'rest' | 'escalate'

export interface GivenUp {
  readonly error: Error
  readonly plan: WhenGivenUp
  /** The child was never up, and its error says that another try cannot help: the recipe or the machine is wrong. */
  readonly isHopeless: boolean
  /** Siblings with the same work that are up or on their way. */
  readonly siblings: number
  /** Earlier rests of this child. */
  readonly rests: number
}

export type Escalation = { readonly do: 'rest'; readonly afterMs: number } | { readonly do: 'escalate' }

/** Boundaries whose errors every sibling would meet as well. */
const common: ReadonlySet<string> = new Set(['bus', 'config'])
const firstRestMs = 60_000
const longestRestMs = 600_000

export function onGivenUp({ error, plan, isHopeless, siblings, rests }: GivenUp): Escalation {
  const isCommon = error instanceof TroupeError && common.has(error.boundary)
  if (plan === 'escalate' || isHopeless || isCommon || siblings === 0) return { do: 'escalate' }
  return { do: 'rest', afterMs: Math.min(longestRestMs, firstRestMs * 2 ** rests) }
}
