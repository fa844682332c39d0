/**
 * Parses English number words: `twenty-one`, `two and a half`, `five point two`, `5 million`, `seven hundredths`, `3
 * dozen`.
 *
 * in   words in lower case, split at blanks and hyphens
 * out  the number as LaTeX; undefined if the words are not exactly one number
 * Invariant: exact (decimals are never rounded), linear time, never throws.
 */
import Fraction from 'fraction.js'

const ones =
  'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen'
const smalls = new Map(ones.split(' ').map((word, value) => [word, value]))
const tens = new Map(
  'twenty thirty forty fifty sixty seventy eighty ninety'.split(' ').map((word, at) => [word, 20 + 10 * at]),
)
const scales = new Map<string, bigint>(
  'thousand million billion trillion quadrillion quintillion'
    .split(' ')
    .map((word, at) => [word, 1000n ** BigInt(at + 1)]),
)
/** Words that multiply the number before them. */
const multiples = new Map<string, bigint>([...scales, ['hundred', 100n], ['dozen', 12n]])
const irregular = new Map([
  ['half', 2],
  ['halve', 2],
  ['quarter', 4],
  ['third', 3],
  ['fifth', 5],
  ['eighth', 8],
  ['ninth', 9],
  ['twelfth', 12],
])
const parts = new Map<string, number>([
  ...[...smalls, ...tens, ['hundred', 100] as const, ['thousand', 1000] as const, ['million', 1e6] as const]
    .filter(([word, value]) => value > 3 && !/five|eight$|nine$|twelve/.test(word))
    .map(([word, value]): [string, number] => [word.replace(/y$/, 'ie').concat('th'), value]),
  ...irregular,
])

/** Returns true for a word that is part of a number (`seven`, `thousands`, `hundredths`) and so cannot be a unit. */
export const isNumberWord = (word: string): boolean =>
  [word, word.replace(/e?s$/, ''), word.replace(/s$/, '')].some(
    one => smalls.has(one) || tens.has(one) || multiples.has(one) || parts.has(one),
  )

/** Parses the words as exactly one number, written in words or in digits; undefined if they are not one. */
export function parseNumberWords(words: readonly string[]): string | undefined {
  const [first, ...rest] = words
  if (first === 'minus' || first === 'negative') {
    const value = rest[0] === 'minus' || rest[0] === 'negative' ? undefined : parseNumberWords(rest)
    return value === undefined || /^[+-]/.test(value) ? undefined : `-${value}`
  }
  const and = words.lastIndexOf('and')
  const isMixed = words.length === 2 && /^[+-]?\d+$/.test(first ?? '') && /^\d+\/\d+$/.test(rest[0]!)
  // `3 1/2` and `three and a half` are mixed numbers; `3 and 1/2` may be two answers and is not parsed.
  const part = isMixed
    ? fractionOf(rest)
    : and > 0 && /\d/.test(words[and + 1] ?? '')
      ? undefined
      : fractionOf(words.slice(and + 1))
  if ((isMixed || and > 0) && part !== undefined) {
    const sign = /^-/.exec(words[0]!)?.[0] ?? ''
    const whole = decimalOf(words.slice(0, isMixed ? 1 : and))?.replace(/^[+-]/, '')
    return whole !== undefined && /^\d+$/.test(whole) ? `${sign}(${whole}+${part})` : undefined
  }
  return and < 0 && part !== undefined ? part : decimalOf(words)
}

/** Parses an integer or a decimal, in digits or in words, with an optional scale: `5.2 million`. */
function decimalOf(words: readonly string[]): string | undefined {
  const last = multiples.get(words.at(-1)?.replace(/s$/, '') ?? '')
  if (words.length > 1 && last !== undefined) {
    const before = digitsOf(words.slice(0, -1)) ?? decimalInWords(words.slice(0, -1))
    if (before !== undefined) return times(before, last)
    // Parses `two dozen` and `a dozen`. `integerOf` parses other scales after words, as in `a hundred thousand`.
    if (words.at(-1) === 'dozen' || words.at(-1) === 'dozens') {
      const dozens = /^an?$/.test(words[0]!) && words.length === 2 ? 1n : integerOf(words.slice(0, -1))
      return dozens === undefined ? undefined : times(String(dozens), 12n)
    }
  }
  return digitsOf(words) ?? decimalInWords(words) ?? integerOf(words)?.toString()
}

const digitsOf = (words: readonly string[]): string | undefined =>
  words.length === 1 && /^[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d)\.?)$/.test(words[0]!)
    ? words[0]!.replaceAll(',', '').replace(/\.$/, '')
    : undefined

/** Parses a decimal in words: `five point two five`. */
function decimalInWords(words: readonly string[]): string | undefined {
  const at = words.indexOf('point')
  if (at < 0) return undefined
  const whole = at === 0 ? 0n : integerOf(words.slice(0, at))
  const digits = words.slice(at + 1).map(word => (word === 'oh' ? 0 : (smalls.get(word) ?? 10)))
  if (whole === undefined || digits.length === 0 || digits.some(digit => digit > 9)) return undefined
  return `${whole}.${digits.join('')}`
}

/**
 * Parses a fraction: `a half`, `three quarters`, `7 hundredths`. A singular denominator means one part; in a proper
 * fraction of tenths or larger parts it is taken for a plural (`two third`). `twenty third` is an ordinal, not a
 * fraction.
 */
function fractionOf(words: readonly string[]): string | undefined {
  const last = words.at(-1) ?? ''
  const digits = /^(\d{1,15})\/(\d{1,15})$/.exec(words.length === 1 ? last : '')
  if (digits !== null) return Number(digits[2]) === 0 ? undefined : `\\frac{${digits[1]}}{${digits[2]}}`
  const under = parts.get(last) ?? parts.get(last.replace(/s$/, ''))
  if (under === undefined) return undefined
  const before = words.slice(0, -1)
  const isOne = before.length === 1 && /^an?$/.test(before[0]!)
  if (before.length === 0)
    return under === 2 && last === 'half' ? '\\frac{1}{2}' : last === 'quarter' ? '\\frac{1}{4}' : undefined
  const over = isOne ? '1' : (digitsOf(before) ?? integerOf(before)?.toString())
  if (over === undefined || !/^[+-]?\d+$/.test(over)) return undefined
  if (!last.endsWith('s') && over !== '1' && !(under <= 10 && Number(over) < under)) return undefined
  return `\\frac{${over}}{${under}}`
}

/** Parses an integer in English words; undefined for any other words. */
function integerOf(words: readonly string[]): bigint | undefined {
  const said = /^an?$/.test(words[0] ?? '') && words.length > 1 ? ['one', ...words.slice(1)] : words
  if (said !== words && words[1] !== 'hundred' && words[1] !== 'dozen' && !scales.has(words[1]!)) return undefined
  let total = 0n
  let group = 0
  let last = Number.POSITIVE_INFINITY
  let lastScale: bigint | undefined
  for (const [at, word] of said.entries()) {
    if (word === 'and') {
      // `and` is allowed only after hundreds or a scale, and before a number from 1 to 99.
      if (at === 0 || (last !== 100 && last !== Number.POSITIVE_INFINITY) || !isFrom1To99(said[at + 1]))
        return undefined
      continue
    }
    const small = smalls.get(word) ?? tens.get(word)
    const scale = scales.get(word)
    if (small !== undefined) {
      // `twenty six` is a number, `five six` is not; `zero` is a number only by itself.
      if (last < 20 || (last < 100 && (small >= 10 || small === 0)) || (at > 0 && small === 0)) return undefined
      group += small
      last = small
    } else if (word === 'hundred' && group > 0 && group < 100 && last < 100) {
      group *= 100
      last = 100
    } else if (scale !== undefined && group > 0 && (lastScale === undefined || scale < lastScale)) {
      total += BigInt(group) * scale
      group = 0
      last = Number.POSITIVE_INFINITY
      lastScale = scale
    } else return undefined
  }
  return said.length === 0 ? undefined : total + BigInt(group)
}

const isFrom1To99 = (word: string | undefined) => word !== undefined && (smalls.get(word) ?? tens.get(word) ?? 0) > 0

/** Multiplies exactly: the product has no more decimal places than the numeral has characters. */
const times = (decimal: string, factor: bigint): string => new Fraction(decimal).mul(factor).toString(decimal.length)
