/**
 * Escalation: decides what a supervisor does when one of its children has used up its restarts, or failed with an error
 * that no restart can help.
 *
 * in   the child's plan and error, how many siblings do the same work, how often the child has paused
 * out  rest (the child pauses and is started again later), or escalate (the supervisor reports to its own supervisor)
 * Invariant: pure. A child pauses only while a sibling can take its work; an error that every sibling would meet
 * escalates.
 */
import { TroupeError } from '../../runtime/errors'

/**
 * Plan for a child that gives up. rest: the child pauses if a sibling can do its work (engines, sandboxes), else the
 * supervisor escalates. escalate: the supervisor escalates, since nothing else does the child's work (behaviours,
 * renderer, trainer).
 */
export type WhenGivenUp = 'rest' | 'escalate'

export interface GivenUp {
  readonly error: Error
  readonly plan: WhenGivenUp
  /**
   * True if the child gave up before its first start succeeded, at an error that no restart can help (`isFatal` of its
   * ProcessOptions).
   */
  readonly isHopeless: boolean
  /** Number of the child's siblings whose plan is `rest` and that do not pause: they are up or starting. */
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
