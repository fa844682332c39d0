/**
 * Parses an answer into a value and a unit: `twenty-one`, `18 dollars`, `3 1/2 cups`, `1.5e3`, `√2`, `€18`.
 *
 * in   an answer        out  its value as LaTeX that math-verify can parse, and the unit before or after it
 * Invariant: linear time, never throws. An answer of more than 200 characters is returned unchanged. An answer of
 * another form has no unit; only its Unicode signs, repeating decimals and digits are rewritten.
 */
import { parseNumberWords } from './numberWords'
import { repeatingToFractions } from './repeatingDecimal'
import { normalizeUnicode } from './unicodeNormalization'
import { parseUnit } from './unitParser'

export const maxQuantityChars = 200

export interface Quantity {
  readonly value: string
  /** Name of the unit; '' for a unit without meaning (`units`); undefined for no unit. */
  readonly unit: string | undefined
  /** True if the unit is a letter that may be a variable as well: `4s`, `2\pi h`; not `4 s`, nor `4\text{ s}`. */
  readonly isLetter?: boolean
}

const signs: Readonly<Record<string, string>> = {
  '∞': '\\infty ',
  π: '\\pi ',
  '×': '\\times ',
  '·': '\\cdot ',
  '⋅': '\\cdot ',
  '÷': '/',
  '⁄': '/',
  '−': '-',
  '≤': '\\leq ',
  '≥': '\\geq ',
  '±': '\\pm ',
  '∪': '\\cup ',
  '∩': '\\cap ',
  '∅': '\\emptyset ',
  '’': "'",
  µ: 'μ',
}
const superscripts = '⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ'
const subscripts = '₀₁₂₃₄₅₆₇₈₉₊₋₍₎'

/** Writes Unicode's fractions, powers, roots and signs as LaTeX. */
function unicodeToLatex(text: string): string {
  if (/^[\x20-\x7e]*$/.test(text)) return text
  return normalizeUnicode(text)
    .replace(/(?:\d[\u0304\u0305])+/g, run => `\\overline{${run.replace(/\D/g, '')}}`)
    .replace(/(\d)\u0307/g, '\\dot{$1}')
    .replace(/[¼-¾⅐-⅞]/g, c => c.normalize('NFKD').replace(/(\d+)\u2044(\d+)/, '\\frac{$1}{$2}'))
    .replace(new RegExp(`[${superscripts}]+`, 'g'), run => `^{${run.normalize('NFKC').replaceAll('−', '-')}}`)
    .replace(new RegExp(`[${subscripts}]+`, 'g'), run => `_{${run.normalize('NFKC').replaceAll('−', '-')}}`)
    .replace(/([√∛])\s*(?:(\d+(?:\.\d+)?|[A-Za-zπ])|\(([^()]*)\)|\{([^{}]*)\})/g, (_, sign, plain, round, curly) => {
      return `\\sqrt${sign === '√' ? '' : '[3]'}{${plain ?? round ?? curly}}`
    })
    .replace(/[∞π×·⋅÷⁄−≤≥±∪∩∅’µ]/g, c => signs[c]!)
    .replace(/^[–—](?=[\d\\.])/, '-')
    .trim()
}

const currencies: Readonly<Record<string, string>> = {
  $: 'dollars',
  '€': 'euros',
  '£': 'pounds',
  '¥': 'yen',
  '₹': 'rupees',
}
const blank = String.raw`(?:\s|~|\\[ ,;:!])`
const amount = new RegExp(
  String.raw`^(?:[\d.,^{}()+*/-]|${blank}|\\(?:[dt]?frac|sqrt|pi|infty|cdot|times|left|right)(?![A-Za-z]))+`,
)
const digitGroups = new RegExp(String.raw`^[+-]?[1-9]\d{0,2}(?:(?:${blank}|\{,\})\d{3})+(?:\.\d+)?$`)
const between = new RegExp(`${blank}|\\{,\\}`, 'g')
/** Matches LaTeX commands for text inside a formula, such as `\text{…}`. */
const textCommand = /\\(?:text|textrm|mathrm|mbox|rm)\s*\{([^{}]*)\}/g

/**
 * Matches values that a variable may follow after a blank: fractions, roots and multiples of π, but not mixed numbers.
 */
const isFactor = /^(?![+-]?\d+(?:\s+\d+\s*\/|\s*\\[dt]?frac)).*(?:\\(?:pi|[dt]?frac|sqrt)|\/)/

/** Matches the `x =` before a value. math-verify reads `x = 5` as 5. */
export const variablePrefix = /^\s*[A-Za-z](?:_\{?\w{1,9}\}?)?\s*=\s*/

export function parseQuantity(answer: string): Quantity {
  const bare = answer.trim()
  if (bare === '' || bare.length > maxQuantityChars) return { value: answer, unit: undefined }
  const text = repeatingToFractions(unicodeToLatex(bare))
  const name = variablePrefix.exec(text)?.[0] ?? ''
  const amount = valueAndUnit(text.slice(name.length))
  return { ...amount, value: `${name}${amount.value}` }
}

function valueAndUnit(text: string): Quantity {
  const inner = /^\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}\.?$/.exec(text)?.[1]
  if (inner !== undefined) return valueWithTail(inner.trim(), '') ?? { value: text, unit: undefined }
  const paid = /^([+-]?)\s*(?:US)?\\?([$€£¥₹])\s*(?=[\d.])|^([+-]?)\s*\\(pounds)\s*(?=\d)/.exec(text)
  const found =
    paid === null
      ? valueWithTail(text, '')
      : valueWithTail(`${paid[1] ?? paid[3]}${text.slice(paid[0].length)}`, currencies[paid[2] ?? '£']!)
  return found ?? normalizeDigits(text, undefined)
}

/**
 * Parses a value and the unit after it.
 * @param money name of the currency whose sign stands before the number; '' for none
 */
function valueWithTail(text: string, money: string): Quantity | undefined {
  const worded = valueInWords(text, money)
  if (worded !== undefined) return worded
  const head = amount.exec(text)?.[0]
  if (head === undefined) return undefined
  const degrees = /\^\{?$/.exec(head)
  const split =
    degrees !== null && /^\\circ\b/.test(text.slice(head.length)) ? head.length - degrees[0].length : head.length
  const before = text.slice(0, split)
  const isAttached = !new RegExp(`${blank}$`).test(before)
  const value = before.replace(new RegExp(`${blank}+$`), '')
  const rest = text.slice(split)
  const tail = rest
    .replace(/\^\{?\\circ\}?|\\degree\b/g, '°')
    .replace(textCommand, ' $1 ')
    .replace(new RegExp(blank, 'g'), ' ')
  if (tail.trim() === '')
    return money === '' ? normalizeDigits(value, undefined) : normalizeDigits(value, parseUnit(money))
  if (!/\d/.test(value) && !/\\(?:pi|infty)$/.test(value)) return undefined
  if (!/(?:[\d.)}]|\\pi|\\infty)$/.test(value)) return undefined
  const isText = /^\\(?:text|mathrm|mbox|rm)/.test(rest) || rest.startsWith('^')
  // The letter in `5 + 3 m` may be a variable.
  if (!isText && /[+-]/.test(value.slice(1).replace(/\([^()]*\)|\{[^{}]*\}/g, ''))) return undefined
  const words = withMoney(money, tail)
  if (/^\s*(?:percent|per cent)\s*$/.test(words))
    return { value: `${normalizeDigits(value, '').value}\\%`, unit: undefined }
  const unit = parseUnit(words, { isAttached: isAttached && !isText, isOne: value === '1' })
  const isLetter = !isText && /^\s*[A-Za-z](?:\^\{?-?\d\}?)?$/.test(tail) && (isAttached || isFactor.test(value))
  if (unit !== undefined) return { ...normalizeDigits(value, unit), isLetter }
  // math-verify ignores `\text{ squared}` and `\text{ million}`, so such words are kept as a part of the value.
  return isText && !/[\\^]/.test(tail)
    ? (valueInWords(`${value}${tail}`.replace(/\s+/g, ' '), money) ?? { value: value + tail, unit: undefined })
    : undefined
}

const withMoney = (money: string, tail: string) =>
  money === '' || tail.trim().startsWith(money) || tail.trim().startsWith(money.slice(0, -1))
    ? tail
    : `${money} ${tail}`

/** Parses a number in words or digits, and the unit after it. Takes as many words as possible for the number. */
function valueInWords(text: string, money: string): Quantity | undefined {
  const said = text.replace(/(?<=[A-Za-z])-(?=[A-Za-z])/g, ' ').replace(/(?<=[A-Za-z])\.$/, '')
  const tokens = said.split(/\s+/)
  if (tokens.length > 30 || !/[A-Za-z]/.test(said)) return undefined
  const words = tokens.map(token => token.toLowerCase())
  for (let taken = Math.min(words.length, 16); taken > 0; taken--) {
    const value = parseNumberWords(words.slice(0, taken))
    if (value === undefined) continue
    const tail = tokens
      .slice(taken)
      .join(' ')
      .replace(/^(?:of )?an? (?=[a-z]{3})/, '')
    if (tail === '') return { value, unit: money === '' ? undefined : parseUnit(money) }
    if (/^(?:percent|per cent)$/.test(tail)) return { value: `${value}\\%`, unit: undefined }
    const unit = parseUnit(withMoney(money, tail), { isOne: value === '1' })
    return unit === undefined ? undefined : { value, unit }
  }
  return undefined
}

/** Normalises a value without words: joins groups of digits, writes mixed numbers and powers of ten as LaTeX. */
function normalizeDigits(text: string, unit: string | undefined): Quantity {
  const digits = digitGroups.test(text) ? text.replace(between, '') : text
  const mix = parseNumberWords(digits.replace(/\s*\/\s*/, '/').split(/\s+/))
  if (mix !== undefined) return { value: mix, unit }
  const scientific = /^([+-]?\d+(?:\.\d+)?)[eE]([+-]?\d{1,4})$/.exec(digits)
  if (scientific !== null) return { value: `${scientific[1]}\\times 10^{${Number(scientific[2])}}`, unit }
  return { value: digits, unit }
}
