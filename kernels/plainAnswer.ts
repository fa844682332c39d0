/**
 * Answers in plain words, as math-verify would read them: `twenty-one`, `18 dollars`, `3 1/2`, `1.5e3`, `\text{Yes}.`
 *
 * in   an answer        out  the same as LaTeX, where it is one of these; whether two answers are one text, or one number of a base
 * Invariant: linear time, never throws. What is not one of these comes back as it was.
 */

const ones =
  'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen'
const smalls = new Map(ones.split(' ').map((word, value) => [word, value]))
const tens = new Map(
  'twenty thirty forty fifty sixty seventy eighty ninety'.split(' ').map((word, at) => [word, 20 + 10 * at]),
)
const scales = new Map([
  ['thousand', 1e3],
  ['million', 1e6],
  ['billion', 1e9],
])
const parts = new Map([
  ...[
    ['half', 2],
    ['halves', 2],
    ['quarter', 4],
    ['quarters', 4],
  ],
  ...'third fourth fifth sixth seventh eighth ninth tenth'.split(' ').flatMap((word, at) => [
    [word, at + 3],
    [`${word}s`, at + 3],
  ]),
] as [string, number][])

const longest = 200

/** The integer that English words say, up to billions; undefined where they say none. */
export function numberOfWords(words: readonly string[]): number | undefined {
  let total = 0
  let group = 0
  let isAny = false
  let last = Number.POSITIVE_INFINITY
  for (const word of words) {
    if (word === 'and' && isAny) continue
    const small = smalls.get(word) ?? tens.get(word)
    const scale = scales.get(word)
    if (small !== undefined) {
      // `five six` is no number, `twenty six` is one.
      if (last < 20 || (last < 100 && small >= 10)) return undefined
      group += small
      last = small
    } else if (word === 'hundred' && group > 0 && group < 10) {
      group *= 100
      last = 100
    } else if (scale !== undefined && isAny) {
      total += group * scale
      group = 0
      last = Number.POSITIVE_INFINITY
    } else return undefined
    isAny = true
  }
  return isAny ? total + group : undefined
}

/** What stands before a unit: digits, signs, LaTeX's numbers. */
const amount =
  /^([+\-\u2212]?\\?\$?(?:[\d.,^{}()+*/\s-]|\\(?:d?frac|t?frac|sqrt|pi|cdot|times|,|!|;|\$))+?)[\s~](?<![A-Za-z\\])([A-Za-z]{2,}(?:[\s/]+[A-Za-z]+){0,3})\.?$/
const notUnits = new Set([
  'and',
  'or',
  'hundred',
  'thousand',
  'million',
  'billion',
  'trillion',
  'percent',
  'dozen',
  'pi',
  'sqrt',
  'to',
  'mod',
  'pm',
  'am',
  ...parts.keys(),
])

export function plainAnswer(answer: string): string {
  const text = answer.trim()
  if (text.length > longest || text === '') return answer
  const words = text
    .toLowerCase()
    .replace(/\.$/, '')
    .split(/[\s-]+/)
  const negative = words[0] === 'minus' || words[0] === 'negative'
  const rest = negative ? words.slice(1) : words
  const sign = negative ? '-' : ''
  const whole = numberOfWords(rest)
  if (whole !== undefined) return `${sign}${whole}`
  const part = parts.get(rest.at(-1) ?? '')
  const over =
    part === undefined
      ? undefined
      : ['a', ''].includes(rest.slice(0, -1).join(' '))
        ? 1
        : numberOfWords(rest.slice(0, -1))
  if (part !== undefined && over !== undefined) return `${sign}\\frac{${over}}{${part}}`
  const mixed = /^([+-]?)(\d+)\s+(\d+)\s*\/\s*([1-9]\d*)$/.exec(text)
  if (mixed) return `${mixed[1]}(${mixed[2]}+\\frac{${mixed[3]}}{${mixed[4]}})`
  const scientific = /^([+-]?\d+(?:\.\d+)?)[eE]([+-]?\d{1,4})$/.exec(text)
  if (scientific) return `${scientific[1]}\\times 10^{${Number(scientific[2])}}`
  return answer
}

/** `18 dollars` as `18`, where the truth has no letters of its own that could be meant. */
export function withoutUnit(answer: string, truth: string): string {
  if (answer.length > longest || /[A-Za-z]/.test(truth.slice(0, longest).replace(commands, ''))) return answer
  const found = amount.exec(answer.trim())
  if (found === null) return answer
  const [, value, unit] = found as unknown as readonly [string, string, string]
  return unit
    .toLowerCase()
    .split(/[\s/]+/)
    .some(word => notUnits.has(word))
    ? answer
    : value.trim()
}

const commands = /\\(?:text|mathrm|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+/g

/** Both are words (not formulas), the same but for case, blanks, `\text{}` around them and a full stop. */
export function sameWords(a: string, b: string): boolean {
  const left = wordsOf(a)
  return left !== undefined && left === wordsOf(b)
}

function wordsOf(text: string): string | undefined {
  if (text.length > longest) return undefined
  const bare = text.replace(/\\(?:text|textbf|textit|mathrm|mbox)\s*\{([^{}]*)\}/g, '$1').replace(/^\$|\$$/g, '')
  const plain = bare
    .normalize('NFKC')
    .replace(/\\[ ,;]/g, ' ')
    .replace(/[\s,]+/g, ' ')
    .trim()
    .replace(/\.$/, '')
  return /^[\p{L}\p{N}' .:-]+$/u.test(plain) && /\p{L}{2}/u.test(plain) ? plain.toLowerCase() : undefined
}

/** Two numerals that say their base: undefined where one does not. math-verify takes the base for nothing. */
export function sameBased(a: string, b: string): boolean | undefined {
  const left = basedOf(a)
  const right = basedOf(b)
  if (left === undefined || right === undefined) return undefined
  return left === right
}

function basedOf(text: string): string | undefined {
  const found = /^\$?\s*([0-9A-F]+)\s*_\s*\{?\s*(?:\\text\{)?\s*(\d{1,2}|[a-z]+)\s*\}?\s*\}?\s*\$?$/.exec(text.trim())
  if (!found || found[1]!.length > 60) return undefined
  const base = smalls.get(found[2]!) ?? Number(found[2])
  if (!(base >= 2 && base <= 16)) return undefined
  let value = 0n
  for (const digit of found[1]!) {
    const worth = Number.parseInt(digit, 16)
    if (worth >= base) return undefined
    value = value * BigInt(base) + BigInt(worth)
  }
  return String(value)
}
