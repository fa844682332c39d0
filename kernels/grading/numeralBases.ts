/**
 * Compares two numerals that name their base, such as `1011_2` and `B_{16}`. math-verify ignores the base.
 *
 * in   two answers, as `1011_2` or `1011_{\text{two}}`, bases 2 to 16, up to 60 digits
 * out  true or false; undefined if one of the two answers is not such a numeral
 * Invariant: exact, never throws.
 */
import { parseNumberWords } from './numberWords'

/** Returns true if two numerals with a base are the same number; undefined if one of the two is not such a numeral. */
export function equalBasedNumerals(a: string, b: string): boolean | undefined {
  const left = numeralValue(a)
  const right = numeralValue(b)
  return left === undefined || right === undefined ? undefined : left === right
}

function numeralValue(text: string): bigint | undefined {
  const found = /^\$?\s*([0-9A-Fa-f]{1,60})\s*_\s*\{?\s*(?:\\text\{)?\s*(\d{1,2}|[a-z]+)\s*\}?\s*\}?\s*\$?$/.exec(
    text.trim(),
  )
  if (found === null) return undefined
  const base = Number(parseNumberWords([found[2]!]))
  // Lower-case letters are digits in base 16 only: `a_{12}` is a variable with an index.
  if (!(base >= 2 && base <= 16) || (base !== 16 && /[a-f]/.test(found[1]!))) return undefined
  let value = 0n
  for (const digit of found[1]!) {
    const worth = Number.parseInt(digit, 16)
    if (worth >= base) return undefined
    value = value * BigInt(base) + BigInt(worth)
  }
  return value
}
