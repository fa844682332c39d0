/**
 * Recognises an answer that is written as a number, in contrast to an expression whose value would have to be computed.
 *
 * in   an answer, as LaTeX or plain text        out  true for a number in digits; false for anything else
 * Invariant: never throws; false for a text of more than 1,000 characters. Also false for `\gcd(10,15)`, `2^{100} \bmod
 * 7`, `\frac{10}{2}` and `6=5`: such an answer restates the problem or leaves the last step out.
 */
import { normalizeInteger } from './integers'

const maxChars = 1000
/** Matches the left side of an equation that names the unknown: it has a letter, as `x`, `f(3)` or `a + b` have. */
const named = /^[^=]*[A-Za-z][^=]*=/
const relation = /^\s*(?:=|\\approx|\\equiv|≈|≡)\s*/
const suffix = /\s*(?:\\?%|°|\^\s*\{?\s*\\circ\s*\}?|\\degree|\\pmod\s*(?:\{\s*\d+\s*\}|\d))\s*$/
const wrapped = /^(?:\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}|\(([^()]*)\)|\\left\(([^()]*)\\right\))$/
const scientific = /^(.*?)\s*(?:(?:\\times|\\cdot|×|·)\s*10\s*\^\s*(?:\{\s*[+\-\u2212]?\d+\s*\}|\d)|[eE][+-]?\d+)$/
const decimal = /^[+\-\u2212]?\s*(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)?\.\d+$/

/**
 * Returns true for an integer or a decimal in digits, also in scientific notation, with a per cent or degree sign or a
 * modulus `\pmod 7` after it, in brackets or `\text{}`, or on the right side of an equation that names the unknown.
 */
export function isNumberLiteral(text: string): boolean {
  if (text.length > maxChars) return false
  let inner = text.replace(/^\s*\$+|\$+\s*$/g, '').trim()
  const equals = inner.lastIndexOf('=')
  if (equals >= 0) {
    if (relation.test(inner.slice(0, equals + 1)) && inner.indexOf('=') === equals) inner = inner.slice(equals + 1)
    else if (named.test(inner)) inner = inner.slice(equals + 1)
    else return false
  }
  inner = inner.replace(relation, '').replace(suffix, '').trim()
  for (let depth = 0; depth < 4; depth++) {
    const found = wrapped.exec(inner)
    if (found === null) break
    inner = (found[1] ?? found[2] ?? found[3])!.trim()
  }
  const mantissa = scientific.exec(inner)?.[1] ?? inner
  return normalizeInteger(mantissa) !== undefined || decimal.test(mantissa.replace(/\{,\}|\\,|\\!/g, ''))
}
