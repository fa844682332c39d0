/**
 * Repeating decimals as the fractions that they are; math-verify reads `0.\overline{3}` as 0.
 *
 * in   LaTeX        out  the same, `0.1\overline{6}`, `0.\bar 3`, `0.\dot{1}4\dot{2}` and `0.(3)` written as fractions
 * Invariant: exact, linear time, never throws.
 */
import Fraction from 'fraction.js'

const over = String.raw`\\(?:overline|bar)\s*(?:\{\s*\d+\s*\}|\d)`
/** The first and the last digit of a period have the dots. */
const dot = String.raw`\\dot\s*(?:\{\s*\d\s*\}|\d)`
const repeating = new RegExp(
  String.raw`(?<![\d.])(\d*(?:(?:,|\{,\})\d{3})*)\.(?:(\d*)(${over}|${dot}(?:\d*${dot})*)|()\((\d+)\))(\s*\^)?`,
  'g',
)

export function withoutRepeating(text: string): string {
  if (!/\\(?:overline|bar|dot)|\.\(/.test(text)) return text
  return text.replace(repeating, (all, whole, some, lined, none, bracketed, power) => {
    if (lined === undefined && whole === '') return all
    const fraction = fractionOf(whole.replace(/\D/g, ''), some ?? none, (lined ?? bracketed).replace(/\D/g, ''))
    return power === undefined ? fraction : `(${fraction})${power}`
  })
}

/** The decimal `whole.some(period)` as a fraction in lowest terms, exactly. */
function fractionOf(whole: string, some: string, period: string): string {
  const { n, d } = new Fraction(`${whole}.${some}(${period})`)
  return d === 1n ? `${n}` : `\\frac{${n}}{${d}}`
}
