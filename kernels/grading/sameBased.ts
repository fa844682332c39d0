/**
 * Whether two numerals that say their base are one number: math-verify takes the base for nothing.
 *
 * in   two answers, as `1011_2` or `1011_{\text{two}}`        out  undefined where one does not say its base
 * Invariant: linear time, never throws.
 */
import { numberOf } from './numberWords'

export function sameBased(a: string, b: string): boolean | undefined {
  const left = basedOf(a)
  const right = basedOf(b)
  return left === undefined || right === undefined ? undefined : left === right
}

function basedOf(text: string): bigint | undefined {
  const found = /^\$?\s*([0-9A-Fa-f]{1,60})\s*_\s*\{?\s*(?:\\text\{)?\s*(\d{1,2}|[a-z]+)\s*\}?\s*\}?\s*\$?$/.exec(
    text.trim(),
  )
  if (found === null) return undefined
  const base = Number(numberOf([found[2]!]))
  // Small letters are digits of a base that people know by them; `a_{12}` is a variable.
  if (!(base >= 2 && base <= 16) || (base !== 16 && /[a-f]/.test(found[1]!))) return undefined
  let value = 0n
  for (const digit of found[1]!) {
    const worth = Number.parseInt(digit, 16)
    if (worth >= base) return undefined
    value = value * BigInt(base) + BigInt(worth)
  }
  return value
}
