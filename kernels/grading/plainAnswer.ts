/**
 * Answers in plain words, as math-verify would read them: `twenty-one`, `18 dollars`, `3 1/2 cups`, `1.5e3`, `√2`, `€18`.
 *
 * in   an answer        out  the same as LaTeX, and the unit that stands after it or before it
 * Invariant: linear time, never throws. What is not one of these comes back as it was.
 */
import { numberOf } from './numberWords'
import { withoutRepeating } from './repeatingDecimal'
import { inOneForm } from './unicodeForms'
import { unitOf } from './unitNames'

export const longestPlain = 200

export interface PlainAnswer {
  readonly value: string
  /** '' is a unit that nothing is known of; undefined is none. */
  readonly unit: string | undefined
  /** The unit is a letter that may as well be a variable: `4s`, `2\pi h`; not `4 s`, nor `4\text{ s}`. */
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
const raised = '⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ'
const lowered = '₀₁₂₃₄₅₆₇₈₉₊₋₍₎'

/** Unicode's ways to write a formula, as LaTeX. */
function inLatex(text: string): string {
  if (/^[\x20-\x7e]*$/.test(text)) return text
  return inOneForm(text)
    .replace(/(?:\d[\u0304\u0305])+/g, run => `\\overline{${run.replace(/\D/g, '')}}`)
    .replace(/(\d)\u0307/g, '\\dot{$1}')
    .replace(/[¼-¾⅐-⅞]/g, c => c.normalize('NFKD').replace(/(\d+)\u2044(\d+)/, '\\frac{$1}{$2}'))
    .replace(new RegExp(`[${raised}]+`, 'g'), run => `^{${run.normalize('NFKC').replaceAll('−', '-')}}`)
    .replace(new RegExp(`[${lowered}]+`, 'g'), run => `_{${run.normalize('NFKC').replaceAll('−', '-')}}`)
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
const grouped = new RegExp(String.raw`^[+-]?[1-9]\d{0,2}(?:(?:${blank}|\{,\})\d{3})+(?:\.\d+)?$`)
const between = new RegExp(`${blank}|\\{,\\}`, 'g')
/** A text in a formula that ends it, as plain text. */
const texted = /\\(?:text|textrm|mathrm|mbox|rm)\s*\{([^{}]*)\}/g

/** What a variable may follow after a blank. A mixed number is none. */
const isFactor = /^(?![+-]?\d+\s*(?:\d+\s*\/|\\[dt]?frac)).*(?:\\(?:pi|[dt]?frac|sqrt)|\/)/

/** `x = 5` is 5 to math-verify. */
export const named = /^\s*[A-Za-z](?:_\{?\w{1,9}\}?)?\s*=\s*/

export function plainAnswer(answer: string): PlainAnswer {
  const bare = answer.trim()
  if (bare === '' || bare.length > longestPlain) return { value: answer, unit: undefined }
  const text = withoutRepeating(inLatex(bare))
  const name = named.exec(text)?.[0] ?? ''
  const amount = amountOf(text.slice(name.length))
  return { ...amount, value: `${name}${amount.value}` }
}

function amountOf(text: string): PlainAnswer {
  const inner = /^\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}\.?$/.exec(text)?.[1]
  if (inner !== undefined) return withTail(inner.trim(), '') ?? { value: text, unit: undefined }
  const paid = /^([+-]?)\s*(?:US)?\\?([$€£¥₹])\s*(?=[\d.])|^([+-]?)\s*\\(pounds)\s*(?=\d)/.exec(text)
  const found =
    paid === null
      ? withTail(text, '')
      : withTail(`${paid[1] ?? paid[3]}${text.slice(paid[0].length)}`, currencies[paid[2] ?? '£']!)
  return found ?? formed(text, undefined)
}

/** @param money  the currency that stands before the number, or nothing */
function withTail(text: string, money: string): PlainAnswer | undefined {
  const worded = inWords(text, money)
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
    .replace(texted, ' $1 ')
    .replace(new RegExp(blank, 'g'), ' ')
  if (tail.trim() === '') return money === '' ? formed(value, undefined) : formed(value, unitOf(money))
  if (!/\d/.test(value) && !/\\(?:pi|infty)$/.test(value)) return undefined
  if (!/(?:[\d.)}]|\\pi|\\infty)$/.test(value)) return undefined
  const isText = /^\\(?:text|mathrm|mbox|rm)/.test(rest) || rest.startsWith('^')
  // In `5 + 3 m` the letter may be a variable.
  if (!isText && /[+-]/.test(value.slice(1).replace(/\([^()]*\)|\{[^{}]*\}/g, ''))) return undefined
  const words = withMoney(money, tail)
  if (/^\s*(?:percent|per cent)\s*$/.test(words)) return { value: `${formed(value, '').value}\\%`, unit: undefined }
  const unit = unitOf(words, { isAttached: isAttached && !isText, isOne: value === '1' })
  const isLetter = !isText && /^\s*[A-Za-z](?:\^\{?-?\d\}?)?$/.test(tail) && (isAttached || isFactor.test(value))
  if (unit !== undefined) return { ...formed(value, unit), isLetter }
  // math-verify would leave `\text{ squared}` out, and `\text{ million}`.
  return isText && !/[\\^]/.test(tail)
    ? (inWords(`${value}${tail}`.replace(/\s+/g, ' '), money) ?? { value: value + tail, unit: undefined })
    : undefined
}

const withMoney = (money: string, tail: string) =>
  money === '' || tail.trim().startsWith(money) || tail.trim().startsWith(money.slice(0, -1))
    ? tail
    : `${money} ${tail}`

/** Numbers in words and in plain digits, with the words that follow them: the longest number counts. */
function inWords(text: string, money: string): PlainAnswer | undefined {
  const said = text.replace(/(?<=[A-Za-z])-(?=[A-Za-z])/g, ' ').replace(/(?<=[A-Za-z])\.$/, '')
  const tokens = said.split(/\s+/)
  if (tokens.length > 30 || !/[A-Za-z]/.test(said)) return undefined
  const words = tokens.map(token => token.toLowerCase())
  for (let taken = Math.min(words.length, 16); taken > 0; taken--) {
    const value = numberOf(words.slice(0, taken))
    if (value === undefined) continue
    const tail = tokens
      .slice(taken)
      .join(' ')
      .replace(/^(?:of )?an? (?=[a-z]{3})/, '')
    if (tail === '') return { value, unit: money === '' ? undefined : unitOf(money) }
    if (/^(?:percent|per cent)$/.test(tail)) return { value: `${value}\\%`, unit: undefined }
    const unit = unitOf(withMoney(money, tail), { isOne: value === '1' })
    return unit === undefined ? undefined : { value, unit }
  }
  return undefined
}

/** An amount without words: digits in groups, mixed numbers, powers of ten. */
function formed(text: string, unit: string | undefined): PlainAnswer {
  const digits = grouped.test(text) ? text.replace(between, '') : text
  const mix = numberOf(digits.replace(/\s*\/\s*/, '/').split(/\s+/))
  if (mix !== undefined) return { value: mix, unit }
  const scientific = /^([+-]?\d+(?:\.\d+)?)[eE]([+-]?\d{1,4})$/.exec(digits)
  if (scientific !== null) return { value: `${scientific[1]}\\times 10^{${Number(scientific[2])}}`, unit }
  return { value: digits, unit }
}
