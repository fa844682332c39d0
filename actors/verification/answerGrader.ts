/**
 * Decides whether an answer equals the truth: by rules in this process, and by math-verify in a sandbox where no rule
 * applies.
 *
 * in   an answer and the truth, as LaTeX or in plain words
 * out  the verdict, the rule that decided, and why in words
 * Concurrent calls with the same pair ask math-verify once, and its verdicts are cached, since rollouts of a group
 * often give the same answers.
 * Invariant: the work on an answer is bounded in time and memory; an answer that cannot be decided is wrong, and the
 * verdict says so. A call rejects only if math-verify is broken, its sandbox fails or cannot be opened, its queue is
 * full, the machine has no memory for it, or the call itself is aborted.
 */
import {
  compareWords,
  equalBasedNumerals,
  equalIgnoringBlanks,
  hasAdjacentNumbers,
  isNumberLiteral,
  normalizeInteger,
  normalizeUnits,
  sameInteger,
} from '../../kernels'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import type { Sandbox } from '../../sandbox'
import { type MathVerifyOptions, type MathVerifyRule, mathVerify } from './mathVerify'

/**
 * Rule that decided the verdict. `math-verify-…`: math-verify could not decide. `too-long`: math-verify was not asked,
 * since the answer or the truth is too long.
 */
type GradingRule = 'no-answer' | 'integer' | 'unit' | 'text' | 'literal' | 'too-long' | MathVerifyRule

export interface Verdict {
  readonly correct: boolean
  readonly how: GradingRule
  readonly why: string
}

export interface AnswerGraderOptions extends MathVerifyOptions {
  /**
   * True if, where the truth is an integer, an answer that is not written as a number in digits is wrong, whatever its
   * value: `\gcd(10,15)` is then wrong although its value is the truth 5. Default: false.
   */
  readonly literal?: boolean
}

export type AnswerGrader = (
  ask: { readonly answer: string; readonly truth: string },
  signal?: AbortSignal,
) => Promise<Verdict>

/**
 * Upper bound on the characters of an answer, or of a truth, that math-verify gets: its time grows with their square.
 */
const maxChars = 10_000
const maxCached = 4096

export function answerGrader(sandbox: Pick<Sandbox, 'run' | 'lanes'>, options: AnswerGraderOptions): AnswerGrader {
  const { literal = false, ...verifying } = options
  const verify = mathVerify(sandbox, verifying)
  const pending = new Map<string, Asked>()
  /** Verdicts by truth and answer, least recently used first. */
  const cache = new Map<string, Verdict>()

  return async (ask, signal) => {
    const given = ask.answer.trim()
    const wanted = ask.truth.trim()
    if (given === '') return { correct: false, how: 'no-answer', why: 'the answer is empty' }
    const { answer, truth, units } = normalizeUnits(given, wanted)
    const byRule = decideByRules({ answer, truth, units, isSameText: answer === truth || given === wanted })
    if (byRule !== undefined) return byRule
    if (literal && normalizeInteger(truth) !== undefined && !isNumberLiteral(answer)) {
      return {
        correct: false,
        how: 'literal',
        why: 'the answer is an expression; expected a number in digits, since the truth is an integer',
      }
    }
    const key = `${truth}\u0000${answer}`
    const cached = cache.get(key)
    if (cached !== undefined) {
      cache.delete(key)
      cache.set(key, cached)
      return cached
    }
    for (let asked = pending.get(key); asked !== undefined; asked = pending.get(key)) {
      try {
        return await (signal === undefined ? asked.deciding : rejectOnAbort(asked.deciding, signal))
      } catch (thrown) {
        // The concurrent call was aborted, not this one: math-verify is asked again.
        if (signal?.aborted || !asked.signal?.aborted) throw thrown
      }
    }
    const deciding = verify(answer, truth, signal)
    pending.set(key, { deciding, signal })
    try {
      const verdict = await deciding
      // A timeout is not cached: a less busy machine may decide the same pair.
      if (verdict.how === 'math-verify') cache.set(key, verdict)
      if (cache.size > maxCached) cache.delete(cache.keys().next().value!)
      return verdict
    } finally {
      pending.delete(key)
    }
  }
}

/** A call of math-verify that has no answer yet, and the signal that aborts it. */
interface Asked {
  readonly deciding: Promise<Verdict>
  readonly signal: AbortSignal | undefined
}

interface Pair {
  readonly answer: string
  readonly truth: string
  readonly units: readonly [string, string] | undefined
  readonly isSameText: boolean
}

/** Decides by rules, without math-verify; undefined if no rule applies. */
function decideByRules({ answer, truth, units, isSameText }: Pair): Verdict | undefined {
  if (units !== undefined) return { correct: false, how: 'unit', why: `two different units: ${units.join(' and ')}` }
  const same = sameInteger(answer, truth)
  if (same !== undefined) {
    return { correct: same, how: 'integer', why: same ? 'the same integer' : 'two different integers' }
  }
  if (isSameText) return { correct: true, how: 'text', why: 'the same text' }
  const based = equalBasedNumerals(answer, truth)
  if (based !== undefined) {
    const why = based ? 'the same number in the bases given' : 'two different numbers in the bases given'
    return { correct: based, how: 'integer', why }
  }
  const words = compareWords(answer, truth)
  if (words === true) return { correct: true, how: 'text', why: 'the same words' }
  if (words === false)
    return { correct: false, how: 'text', why: 'products of different letters: upper and lower case differ' }
  const length = Math.max(answer.length, truth.length)
  if (length > maxChars) {
    return { correct: false, how: 'too-long', why: `${length} characters: math-verify is not asked above ${maxChars}` }
  }
  if (!hasAdjacentNumbers(answer) && !hasAdjacentNumbers(truth)) return undefined
  const correct = equalIgnoringBlanks(answer, truth)
  const why = correct
    ? 'the same numbers, separated by blanks'
    : 'two numbers with only a blank between them are not one value'
  return { correct, how: 'text', why }
}
