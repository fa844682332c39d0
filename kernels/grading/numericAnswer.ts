/**
 * Finds the number that a response gives as its answer, by the two rules with which GSM8K is usually scored.
 *
 * in   the text of the model's turns
 * out  the number as it is written, without `$` and commas; null if there is none
 * Place `hashes`, the strict rule: the number after the last `####` that is followed, within at most 8 blanks, by a
 * number, as GSM8K's own solutions end (arXiv 2110.14168 §2). Place `last-number`, the lenient rule: the last number of
 * the text, wherever it stands.
 * Invariant: linear time, never throws. A `.` or `,` that ends a sentence is not part of the number.
 */

/**
 * Matches an integer or a decimal. Commas may stand anywhere between the digits before the point; a `$` may stand
 * before or after the sign.
 */
const number = String.raw`(?:[-−]\$?|\$[-−]?)?(?:\d+(?:,\d+)*(?:\.\d+)?|\.\d+)`
const afterHashes = new RegExp(String.raw`####[ \t]{0,8}(${number})`, 'g')
const anyNumber = new RegExp(number, 'g')

/** Returns the number after the last `####` that is followed by one. */
export function numberAfterHashes(text: string): string | null {
  let found: string | null = null
  for (const [, written] of text.matchAll(afterHashes)) found = written ?? null
  return found === null ? null : plain(found)
}

/** Returns the last number of the text. In `3-4`, which is a difference, it is 4. */
export function lastNumber(text: string): string | null {
  let found: string | null = null
  for (const match of text.matchAll(anyNumber)) {
    const [written] = match
    const isDifference = /[-−]/.test(written[0]!) && /[\w)\]}]/.test(text[match.index - 1] ?? '')
    found = isDifference ? written.slice(1) : written
  }
  return found === null ? null : plain(found)
}

const plain = (written: string) => written.replaceAll(/[$,]/g, '').replace('−', '-')
