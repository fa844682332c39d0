/**
 * Draws exercises for the cold start: plain calculations and single uses of Python, asked in a sentence.
 *
 * in   a generator of random numbers      out  a question, the Python that answers it, and its output
 * The exercises show how to use the tool, not how to reason: each is one calculation on the question's own operands.
 * None is worded like a problem of the families that the recipe trains or evaluates on (families.ts), and none needs a
 * gcd, an lcm or prime factors; plain sums and products, which some families ask for, are among the exercises.
 * Invariant: `printed` is what CPython prints (a test runs exercises of every kind).
 */
import type { Random } from '../../kernels/random'

export interface Exercise {
  readonly question: string
  /** Lines of Python before the last one, such as imports. */
  readonly before: readonly string[]
  /** Python expression that is printed. */
  readonly expression: string
  /** Value of the expression as Python prints it. */
  readonly printed: string
}

const words = 'window garden silver planet bottle market summer bridge candle forest letter monkey'.split(' ')

const between = (random: Random, low: number, high: number) => low + random.below(high - low + 1)
const pick = <T>(random: Random, from: readonly T[]): T => from[random.below(from.length)]!
const list = (random: Random, length: number) => Array.from({ length }, () => between(random, 2, 99))
const plain = (question: string, expression: string, value: number | bigint | string): Exercise => ({
  question,
  before: [],
  expression,
  printed: String(value),
})

const using = (line: string, question: string, expression: string, value: number | string): Exercise => ({
  question,
  before: [line],
  expression,
  printed: String(value),
})
const range = (length: number) => Array.from({ length }, (_, i) => i)
const triples = [
  [3, 4, 5],
  [5, 12, 13],
  [8, 15, 17],
] as const

/** Generators of the kinds of exercises, which are equally frequent. */
const kinds: readonly ((random: Random) => Exercise)[] = [
  random => {
    const [a, b, c] = [between(random, 10, 999), between(random, 10, 999), between(random, 10, 999)]
    const asked = pick(random, [
      `What is ${a} + ${b} + ${c}?`,
      `Add ${a}, ${b} and ${c}.`,
      `Find the sum of ${a}, ${b} and ${c}.`,
    ])
    return plain(asked, `${a} + ${b} + ${c}`, a + b + c)
  },
  random => {
    const [a, b] = [between(random, 100, 9999), between(random, 10, 999)]
    return plain(pick(random, [`What is ${a} - ${b}?`, `Subtract ${b} from ${a}.`]), `${a} - ${b}`, a - b)
  },
  random => {
    const [a, b] = [between(random, 12, 99), between(random, 3, 99)]
    return plain(pick(random, [`Multiply ${a} by ${b}.`, `What is ${a} times ${b}?`]), `${a} * ${b}`, a * b)
  },
  random => {
    const [a, b] = [between(random, 3, 40), between(random, 3, 40)]
    const asked = pick(random, [`Divide ${a * b} by ${b}.`, `How often does ${b} go into ${a * b}?`])
    return plain(asked, `${a * b} // ${b}`, a)
  },
  random => {
    const [a, b] = [between(random, 100, 999), between(random, 3, 30)]
    const asked = pick(random, [`What is the remainder when ${a} is divided by ${b}?`, `Compute ${a} modulo ${b}.`])
    return plain(asked, `${a} % ${b}`, a % b)
  },
  random => {
    const [a, b] = [between(random, 2, 12), between(random, 2, 6)]
    const asked = pick(random, [`What is ${a} to the power of ${b}?`, `Raise ${a} to the power ${b}.`])
    return plain(asked, `${a} ** ${b}`, BigInt(a) ** BigInt(b))
  },
  random => {
    const numbers = list(random, between(random, 3, 6))
    const asked = pick(random, [
      `Which of ${numbers.join(', ')} is the largest?`,
      `Give the maximum of ${numbers.join(', ')}.`,
    ])
    return plain(asked, `max(${numbers.join(', ')})`, Math.max(...numbers))
  },
  random => {
    const numbers = list(random, between(random, 3, 6))
    const asked = pick(random, [
      `Which of ${numbers.join(', ')} is the smallest?`,
      `Give the minimum of ${numbers.join(', ')}.`,
    ])
    return plain(asked, `min(${numbers.join(', ')})`, Math.min(...numbers))
  },
  random => {
    const numbers = list(random, between(random, 4, 7))
    return plain(
      `Add up the list [${numbers.join(', ')}].`,
      `sum([${numbers.join(', ')}])`,
      numbers.reduce((sum, n) => sum + n, 0),
    )
  },
  random => {
    const numbers = list(random, between(random, 4, 9))
    return plain(`How many numbers are in [${numbers.join(', ')}]?`, `len([${numbers.join(', ')}])`, numbers.length)
  },
  random => {
    const word = pick(random, words)
    return plain(`How long is the word "${word}"?`, `len("${word}")`, word.length)
  },
  random => {
    const word = pick(random, words)
    return {
      question: `Write "${word}" in capital letters.`,
      before: [],
      expression: `"${word}".upper()`,
      printed: word.toUpperCase(),
    }
  },
  random => {
    const a = between(random, 3, 30)
    return {
      question: `What is the square root of ${a * a}?`,
      before: ['import math'],
      expression: `math.isqrt(${a * a})`,
      printed: String(a),
    }
  },
  random => {
    const a = between(random, 3, 12)
    let product = 1n
    for (let factor = 2n; factor <= BigInt(a); factor++) product *= factor
    const asked = pick(random, [`What is ${a} factorial?`, `Compute ${a}!.`])
    return { question: asked, before: ['import math'], expression: `math.factorial(${a})`, printed: product.toString() }
  },
  random => {
    const [a, b] = [between(random, 1, 30), between(random, 4, 12)]
    const last = a + b
    const asked = `Add all whole numbers from ${a} to ${last}.`
    return plain(asked, `sum(range(${a}, ${last + 1}))`, ((a + last) * (b + 1)) / 2)
  },
  random => {
    const [a, b] = [between(random, 1, 9), between(random, 20, 60)]
    const even = Array.from({ length: b - a + 1 }, (_, i) => a + i).filter(n => n % 2 === 0)
    const asked = `How many even numbers are there from ${a} to ${b}?`
    return plain(asked, `sum(1 for n in range(${a}, ${b + 1}) if n % 2 == 0)`, even.length)
  },
  random => {
    // Adds a quarter to a half: the sum is never an integer, exact in binary, and printed the same by Python and
    // JavaScript.
    const [x, y] = [between(random, 1, 99) + 0.25, between(random, 1, 99) + 0.5]
    return plain(pick(random, [`What is ${x} + ${y}?`, `Add ${x} and ${y}.`]), `${x} + ${y}`, x + y)
  },
  random => {
    const [n, k] = [between(random, 5, 20), between(random, 2, 4)]
    const chosen = range(k).reduce((ways, i) => (ways * (n - i)) / (i + 1), 1)
    const asked = `In how many ways can ${k} of ${n} people be chosen?`
    return using('import math', asked, `math.comb(${n}, ${k})`, chosen)
  },
  random => {
    const [n, k] = [between(random, 4, 12), between(random, 2, 3)]
    const ordered = range(k).reduce((ways, i) => ways * (n - i), 1)
    return using(
      'import math',
      `How many ordered choices of ${k} out of ${n} are there?`,
      `math.perm(${n}, ${k})`,
      ordered,
    )
  },
  random => {
    const [scale, [a, b, c]] = [between(random, 1, 12), pick(random, triples)]
    const asked = `A right triangle has legs ${a * scale} and ${b * scale}. How long is its hypotenuse?`
    return using('import math', asked, `math.hypot(${a * scale}, ${b * scale})`, `${c * scale}.0`)
  },
  random => {
    const exponent = between(random, 2, 20)
    return using(
      'from math import log2',
      `What is the base-2 logarithm of ${2 ** exponent}?`,
      `log2(${2 ** exponent})`,
      `${exponent}.0`,
    )
  },
  random => {
    const [a, b] = [between(random, 10, 300), between(random, 3, 9)]
    const asked = pick(random, [`Round ${a} / ${b} up to a whole number.`, `How many boxes of ${b} hold ${a} eggs?`])
    return using('from math import ceil', asked, `ceil(${a} / ${b})`, Math.ceil(a / b))
  },
  random => {
    const numbers = list(random, 5)
    const middle = [...numbers].sort((a, b) => a - b)[2]!
    return using(
      'import statistics',
      `What is the median of ${numbers.join(', ')}?`,
      `statistics.median([${numbers.join(', ')}])`,
      middle,
    )
  },
  random => {
    const number = between(random, 1000, 99_999)
    const digits = [...String(number)].reduce((sum, digit) => sum + Number(digit), 0)
    return plain(`What is the sum of the digits of ${number}?`, `sum(int(d) for d in str(${number}))`, digits)
  },
  random => {
    const numbers = list(random, between(random, 4, 6))
    const squares = numbers.reduce((sum, n) => sum + n * n, 0)
    return plain(`Add the squares of ${numbers.join(', ')}.`, `sum(n ** 2 for n in [${numbers.join(', ')}])`, squares)
  },
  random => {
    const numbers = list(random, between(random, 4, 7))
    const sorted = [...numbers].sort((a, b) => a - b)
    return plain(`Sort ${numbers.join(', ')}.`, `sorted([${numbers.join(', ')}])`, `[${sorted.join(', ')}]`)
  },
  random => {
    const [a, b] = [between(random, 2, 9), between(random, 3, 8)]
    const asked = `Start with ${a} and double it ${b} times. What comes out?`
    const before = [`n = ${a}`, `for i in range(${b}):`, '    n = n * 2']
    return { question: asked, before, expression: 'n', printed: String(a * 2 ** b) }
  },
  random => {
    const [a, b] = [between(random, 2, 20), between(random, 30, 99)]
    const before = ['count = 0', `for n in range(${a}, ${b}):`, `    if n % 7 == 0:`, '        count += 1']
    const count = range(b - a).filter(i => (a + i) % 7 === 0).length
    return {
      question: `How many multiples of 7 are at least ${a} and below ${b}?`,
      before,
      expression: 'count',
      printed: String(count),
    }
  },
  random => {
    const [a, b] = [between(random, 2, 60), between(random, 2, 60)]
    const before = ['def area(a, b):', '    return a * b']
    return {
      question: `What is the area of a rectangle of ${a} by ${b}?`,
      before,
      expression: `area(${a}, ${b})`,
      printed: String(a * b),
    }
  },
]

/** Draws a random exercise of a random kind. */
export const exercise = (random: Random): Exercise => pick(random, kinds)(random)
