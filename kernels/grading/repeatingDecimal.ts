/**
 * Rewrites repeating decimals as fractions. math-verify reads `0.\overline{3}` as 0.
 *
 * in   LaTeX        out  the same LaTeX; `0.1\overline{6}`, `0.\bar 3`, `0.\dot{1}4\dot{2}` and `0.(3)` are fractions
 * Invariant: exact, never throws. The search takes linear time; reducing a fraction does not, so callers pass at most
 * 200 characters.
 */
import Fraction from 'fraction.js'

const over = String.raw`\\(?:overline|bar)\s*(?:\{\s*\d+\s*\}|\d)`
/** In the notation with dots, `\dot` marks the first and the last digit of the period. */
const dot = String.raw`\\dot\s*(?:\{\s*\d\s*\}|\d)`
const repeating = new RegExp(
  String.raw`(?<![\d.])(\d*(?:(?:,|\{,\})\d{3})*)\.(?:(\d*)(${over}|${dot}(?:\d*${dot})*)|()\((\d+)\))(\s*\^)?`,
  'g',
)

export function repeatingToFractions(text: string): string {
  if (!/\\(?:overline|bar|dot)|\.\(/.test(text)) return text
  return text.replace(repeating, (all, whole, some, lined, none, bracketed, power) => {
    if (lined === undefined && whole === '') return all
    const fraction = fractionOf(whole.replace(/\D/g, ''), some ?? none, (lined ?? bracketed).replace(/\D/g, ''))
    return power === undefined ? fraction : `(${fraction})${power}`
  })
}

/** Returns the decimal `whole.some(period)` as a fraction in lowest terms, exactly. */
function fractionOf(whole: string, some: string, period: string): string {
  const { n, d } = new Fraction(`${whole}.${some}(${period})`)
  return d === 1n ? `${n}` : `\\frac{${n}}{${d}}`
}
