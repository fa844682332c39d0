/**
 * Finds the known name that an unknown name most likely means, for the `did you mean` of error messages.
 *
 * in   the unknown name, the known names
 * out  the best of the first rule that fits: the same letters (`learning_rate`), the initials of its words (`lr` for
 *      `learningRate`), few typing errors, all words of the name among those of the known one (`batch_tokens` for
 *      `microBatchTokens`); undefined if no rule fits
 */
import { distance } from 'fastest-levenshtein'

/** Splits a name in camelCase, snake_case, kebab-case or with dots into its words, in lower case. */
const wordsOf = (name: string): readonly string[] =>
  name
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .split(/[\s_.-]+/)
    .filter(Boolean)
    .map(word => word.toLowerCase())

/** Upper bound on the typing errors of a misspelt name: a third of its letters, rounded up, at least 1. */
const mostErrors = (name: string) => Math.max(1, Math.ceil(name.length / 3))

export function nearestName(name: string, known: Iterable<string>): string | undefined {
  const words = wordsOf(name)
  const letters = words.join('')
  const others = [...known].map(one => ({ name: one, words: wordsOf(one) }))
  const same = others.find(one => one.words.join('') === letters)
  const byInitials = others.find(one => one.words.length > 1 && one.words.map(word => word[0]).join('') === letters)
  const bySpelling = others
    .map(one => ({ ...one, errors: distance(letters, one.words.join('')) }))
    .filter(one => one.errors <= mostErrors(letters))
    .toSorted((a, b) => a.errors - b.errors)[0]
  const byWords = others
    .filter(one => words.length > 0 && words.every(word => one.words.includes(word)))
    .toSorted((a, b) => a.words.length - b.words.length)[0]
  return (same ?? byInitials ?? bySpelling ?? byWords)?.name
}

/** Returns `; did you mean 'NAME'?`, or nothing if no known name is near. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const nearest = nearestName(name, known)
  return nearest === undefined ? '' : `; did you mean '${nearest}'?`
}
