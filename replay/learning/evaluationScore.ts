/**
 * Formats an evaluation's score, for people and for programs.
 *
 * in   `evaluation.completed`        out  pass@1 and its standard error; whether the score covers all problems
 * Invariant: when no answer was judged, the score is `null` and is shown as `–`, never as zero.
 */
import type { EvaluationCompleted } from '../../messages/facts'

export interface Score {
  readonly passAt1: number | null
  readonly standardError: number | null
  readonly n: number
}

export const scored = ({ passAt1, standardError, n }: Score): Score =>
  n === 0 ? { passAt1: null, standardError: null, n } : { passAt1, standardError, n }

/** Formats the score as `0.412 ± 0.021`: shares of 1; `–` when no answer was judged. */
export function shownScore(score: Score): string {
  const { passAt1, standardError } = scored(score)
  if (passAt1 === null) return '–'
  return standardError === null ? passAt1.toFixed(3) : `${passAt1.toFixed(3)} ± ${standardError.toFixed(3)}`
}

/** Number of judged problems; `30 of 500` when some problems have no judged answer. */
export const problemsOf = ({ n, asked }: Pick<EvaluationCompleted, 'n' | 'asked'>): string =>
  isWhole({ n, asked }) ? String(n) : `${n} of ${asked?.problems}`

/** True when every problem of the evaluation has a judged answer, or when the log does not say how many were asked. */
export const isWhole = ({
  n,
  asked,
}: {
  readonly n: number
  readonly asked?: EvaluationCompleted['asked'] | undefined
}) => asked === undefined || n >= asked.problems
