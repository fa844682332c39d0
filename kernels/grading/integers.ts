/**
 * Reads integers in the notations that models use, and compares two of them.
 *
 * in   one or two answers
 * out  the integer in its shortest decimal form; true or false if both answers are integers
 * Invariant: linear time, never throws. Returns undefined for anything but integers: math-verify decides those answers.
 */

const maxChars = 10_000
const thinSpace = /\\[,;:! ]|\{,\}|~/g

/**
 * Returns the integer that the text writes, in its shortest decimal form (`-17`), or undefined.
 *
 * Accepted: a sign (+, -, −), leading zeros, groups of three digits separated by a comma, `{,}`, `~` or one of LaTeX's
 * blanks (`\,`, `\;`, `\:`, `\!`, `\ `), a fraction of zeros (`42.0`, `42.`), and up to four layers of `$…$`, `$$…$$`,
 * `\(…\)`, `\[…\]` or `{…}` around the whole. `-0` is `0`. Not accepted, so math-verify decides: words, units, per
 * cent, fractions, powers, `1e3`, groups of any other length, texts of more than 10,000 characters.
 */
export function normalizeInteger(text: string): string | undefined {
  if (text.length > maxChars) return undefined
  let inner = unwrap(text.trim())
  // Reads `1{,}234`, `1\,234` and `1\!,234` (a comma set closer) as `1,234`.
  inner = inner.replace(/\\!\s*,|,\s*\\!/g, ',').replace(thinSpace, ',')
  const found = /^([+\-\u2212]?)\s*([0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)(?:\.0*)?$/.exec(inner)
  if (!found) return undefined
  const digits = found[2]!.replaceAll(',', '').replace(/^0+(?=[0-9])/, '')
  return digits !== '0' && (found[1] === '-' || found[1] === '\u2212') ? `-${digits}` : digits
}

/** Returns true if two answers are the same integer, false if they are different integers, else undefined. */
export function sameInteger(a: string, b: string): boolean | undefined {
  const left = normalizeInteger(a)
  const right = normalizeInteger(b)
  return left === undefined || right === undefined ? undefined : left === right
}

const wraps = [
  ['$$', '$$'],
  ['$', '$'],
  ['\\(', '\\)'],
  ['\\[', '\\]'],
  ['{', '}'],
] as const

function unwrap(text: string): string {
  for (let depth = 0; depth < 4; depth++) {
    const wrap = wraps.find(
      ([open, close]) => text.length > open.length + close.length && text.startsWith(open) && text.endsWith(close),
    )
    if (!wrap) return text
    text = text.slice(wrap[0].length, -wrap[1].length).trim()
  }
  return text
}
