/**
 * An evaluation's score, for people and for programs.
 *
 * in   `evaluation.completed`        out  pass@1 and its standard error; whether all problems are in it
 * Invariant: where no answer was judged there is no score, which is `null` and `–`, never a zero.
 */
import type { EvaluationCompleted } from '../../messages/facts'

export interface Score {
  readonly passAt1: number | null
  readonly standardError: number | null
  readonly n: number
}

export const scored = ({ passAt1, standardError, n }: Score): Score =>
  n === 0 ? { passAt1: null, standardError: null, n } : { passAt1, standardError, n }

/** As shares of 1. */
export function shownScore(score: Score): string {
  const { passAt1, standardError } = scored(score)
  return passAt1 === null ? '–' : `${passAt1.toFixed(3)} ± ${(standardError ?? 0).toFixed(3)}`
}

/** `30 of 500`, where not all problems have a judged answer. */
export const problemsOf = ({ n, asked }: Pick<EvaluationCompleted, 'n' | 'asked'>): string =>
  isWhole({ n, asked }) ? String(n) : `${n} of ${asked?.problems}`

/** Whether every problem that was asked has a judged answer, as far as the log tells. */
export const isWhole = ({
  n,
  asked,
}: {
  readonly n: number
  readonly asked?: EvaluationCompleted['asked'] | undefined
}) => asked === undefined || n >= asked.problems
