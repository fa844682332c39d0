/**
 * Parses the unit after a number: measures come from a list, counted things are recognised by their plural.
 *
 * in   the text after a number
 * out  its unit, the same for `m/s` and `meters per second`; '' for `units`; undefined for no unit
 * A noun that is not listed must be a plural. Words that change a value (`squared`, `factorial`, `repeating`) hardly
 * ever have a plural, and those that look like one (`plus`, `times`, `hundredths`) are listed. A doubtful text counts
 * as no unit.
 * Invariant: linear time, never throws.
 */
import { isNumberWord } from './numberWords'

const pairsOf = (text: string) => text.split(/\s+/).map(pair => pair.split(':') as [string, string])
const setOf = (text: string) => new Set(text.split(/\s+/))

const prefixes = pairsOf('k:kilo c:centi m:milli μ:micro u:micro n:nano d:deci M:mega G:giga T:tera')
const scaled = pairsOf(
  `m:meter g:gram L:liter l:liter s:second Hz:hertz J:joule W:watt Wh:watthour N:newton Pa:pascal V:volt A:ampere mol:mole B:byte
  eV:electronvolt cal:calorie`.replace(/\n\s*/g, ' '),
)
const symbols = new Map([
  ...scaled,
  ...scaled.flatMap(([symbol, name]) => prefixes.map(([p, prefix]) => [p + symbol, prefix + name] as const)),
  ...pairsOf(
    'h:hour hr:hour hrs:hour min:minute mins:minute sec:second secs:second yr:year yrs:year wk:week mo:month ft:foot in:inch yd:yard yds:yard mi:mile',
  ),
  ...pairsOf('oz:ounce lb:pound lbs:pound tsp:teaspoon tbsp:tablespoon pt:pint qt:quart gal:gallon ha:hectare Ω:ohm'),
  ...pairsOf('rad:radian deg:degree °:degree K:kelvin mph:mile/hour kph:kilometer/hour kmh:kilometer/hour KB:kilobyte'),
  ...pairsOf('USD:dollar EUR:euro GBP:pound ¢:cent €:euro £:pound'),
])
/**
 * Names of measures (meter, hour, dollar). Any other noun counts as a unit only if it is a plural, or the number is 1.
 */
const names = new Set([
  ...[...symbols.values()].filter(name => !name.includes('/')),
  ...setOf(
    'celsius fahrenheit day decade century tonne ton cup acre yen yuan rupee peso franc knot unit bit byte penny',
  ),
])
const aliases = new Map([
  ...pairsOf('metre:meter litre:liter gramme:gram amp:ampere pence:penny feet:foot'),
  ...pairsOf(
    'people:person men:man women:woman children:child teeth:tooth mice:mouse geese:goose sheep:sheep fish:fish',
  ),
])
/** Unit symbols that may be products of variables if no blank separates them from the number. */
const ambiguousAttached = setOf('nm ms mo pt mi in')
const shortAttached = setOf('m g s h L °  € £ ¢')
/** Words that look like plurals but are not units: they change a value or begin a formula. */
const notNouns = setOf(
  'plus minus times ones tens scores percents percentages is has was its this thus equals exceeds divides cos abs sines cosines tangents logs ' +
    'factorials negatives inverses reciprocals repeats recurs does always googols googol lakhs crores myriads powers exponents modulos',
)
/** Words that are in no counted unit (`3 apples`); measures such as `meters squared` may have them. */
const notInUnits = setOf(
  'than or and but not mod modulo divided multiplied by to from if when where squared cubed factorial percent root sqrt log ln sin cos tan sec csc cot ' +
    'exp lim max gcd lcm det pi base binary octal hex hexadecimal repeating recurring between about pm negative approximately inverse',
)
/** Words after a unit that add no meaning (`in total`, `left`, `long`). */
const fillers = /(?<=\s)(?:each|in total|total|altogether|left|remaining|long|wide|tall|high|deep|old|away|apart)$/
const ordinal = /[a-z]{2}ths?$/
const ordinalLookalike = /^(?:month|path|length|depth|width|bath|truth|mouth|youth|tooth)s?$/

/**
 * Parses the unit in the text after a number.
 * @param isOne true if the number is 1, so that a noun may be singular
 * @param isAttached true if no blank separates the text from the number
 */
export function parseUnit(tail: string, { isAttached = false, isOne = false } = {}): string | undefined {
  const text = tail
    .trim()
    .replace(/\.$/, '')
    .replace(/(?:°|\bdegrees?)\s*(?:C\b|celsius)/gi, 'celsius')
    .replace(/(?:°|\bdegrees?)\s*(?:F\b|fahrenheit)/gi, 'fahrenheit')
    .replace(fillers, '')
    .trim()
  const words = text.match(/[A-Za-zμΩ'-]+|[°¢€£/*]|\^\{?-?\d\}?|\\cdot/g)
  if (words === null || words.length > 8 || words.join('') !== text.replace(/\s+/g, '')) return undefined
  const [first] = words as [string]
  if (isAttached && (first.length === 1 ? !shortAttached.has(first) : ambiguousAttached.has(first))) return undefined
  const measure = measureOf(words)
  if (measure !== undefined || (isAttached && first.length < 4)) return measure
  return countOf(words, isOne)
}

/** Parses products and quotients of measures into powers of their names: `kg m/s^2` is `kilogram meter second^-2`. */
function measureOf(words: readonly string[]): string | undefined {
  const powers = new Map<string, number>()
  const raise = (name: string, by: number) => powers.set(name, (powers.get(name) ?? 0) + by)
  let sign = 1
  let power = 1
  let last: string | undefined
  for (const word of words) {
    const lower = word.toLowerCase()
    const exponent = lower === 'squared' ? '2' : lower === 'cubed' ? '3' : /^\^\{?(-?\d)/.exec(word)?.[1]
    if (exponent !== undefined) {
      if (last === undefined) return undefined
      raise(last, sign * (Number(exponent) - 1))
      last = undefined
    } else if (word === '/' || lower === 'per') sign = -1
    else if (lower === 'square' || lower === 'sq') power = 2
    else if (lower === 'cubic' || lower === 'cu') power = 3
    else if (word !== '*' && word !== '\\cdot') {
      const name = symbols.get(word) ?? (word.length > 1 ? symbols.get(lower) : undefined) ?? nameOf(lower)
      if (name === undefined) return undefined
      const [over, under] = name.split('/') as [string, string | undefined]
      raise(over, sign * power)
      if (under !== undefined) raise(under, -sign)
      last = over
      power = 1
    }
  }
  if (powers.size === 0) return undefined
  powers.delete('unit')
  const found = [...powers].filter(([, n]) => n !== 0).sort(([a], [b]) => (a < b ? -1 : 1))
  return found.map(([name, n]) => (n === 1 ? name : `${name}^${n}`)).join(' ')
}

/** Returns the name of a measure in any spelling, singular or plural. */
function nameOf(word: string): string | undefined {
  for (const one of [word, singular(word)]) {
    const name = one.replace(/(?:metre|litre|gramme|amp|pence|feet)$/, end => aliases.get(end)!)
    if (names.has(name)) return name
  }
  return undefined
}

const singular = (word: string) =>
  word
    .replace(/ies$/, 'y')
    .replace(/(?<=ch|sh|ss|x)es$/, '')
    .replace(/(?<![sui])s$/, '')

/** Parses a counted noun, with adjectives (`different ways`) or a divisor (`apples per child`). */
function countOf(words: readonly string[], isOne: boolean): string | undefined {
  const lower = words.map(word => word.toLowerCase())
  const by = lower.findIndex(word => word === 'per' || word === '/')
  const over = by < 0 ? lower : lower.slice(0, by)
  const head = over.at(-1)
  // A single letter is a variable. A word with a capital inside is a product of variables. Neither is a unit.
  if (!words.every(word => /^(?:[A-Za-z][a-z'-]+|[aA]|\/)$/.test(word))) return undefined
  if (head === undefined || lower.some(word => notInUnits.has(word) || isNumberWord(word))) return undefined
  if (over.some(word => notNouns.has(word) || (ordinal.test(word) && !ordinalLookalike.test(word)))) return undefined
  const noun = nameOf(head) ?? aliases.get(head) ?? singular(head)
  const isPlural = noun !== head || names.has(noun) || aliases.has(head)
  if (noun.length < 3 || !(isPlural || (isOne && looksLikeWord(head)))) return undefined
  const under = by < 0 ? '' : `/${singular(lower.at(-1)!)}`
  return by >= 0 && by === lower.length - 1 ? undefined : `${noun}${under}`
}

/**
 * Returns true for letters that look like a word rather than a product of variables: three or more letters, a vowel,
 * not all in alphabetical order with steps of at most 3 (`abc`, `ace`), and in words of up to four letters no pair that
 * such words hardly ever have (`xz`).
 */
export function looksLikeWord(letters: string): boolean {
  const word = letters.toLowerCase()
  const isRun = [...word].every(
    (c, at) =>
      at === 0 || (c.charCodeAt(0) > word.charCodeAt(at - 1) && c.charCodeAt(0) <= word.charCodeAt(at - 1) + 3),
  )
  return (
    /^\p{L}{3,}$/u.test(word) &&
    /[aeiouy\u00c0-\uffff]/.test(word) &&
    !isRun &&
    (word.length > 4 || !/bc|cd|df|fg|jk|pq|qr|vw|wx|xz/.test(word))
  )
}
