/**
 * Evaluates a LaTeX expression to a double by recursive descent, without sympy.
 *
 * in   an expression of numbers, fractions, roots, powers, π, e, trigonometric functions, ln, exp, factorials,
 *      binomials, per cent, degrees
 * out  its value; undefined if it has a variable, is a list, is too long or nested too deep, or cannot be parsed
 * Invariant: never throws; a value that overflows is undefined.
 */

const maxChars = 2000
const maxDepth = 60

/** Evaluates LaTeX of at most 2,000 characters, nested at most 60 levels deep; undefined if it cannot. */
export function numericValue(text: string): number | undefined {
  if (text.length > maxChars) return undefined
  try {
    const clean = cleaned(text)
    // `2 1` is two numbers, not a product, so it has no value.
    if (/\d[ \n]+[\d.]/.test(clean)) return undefined
    const parser = new Parser(clean)
    const value = parser.sum(0)
    return parser.isAtEnd() && Number.isFinite(value) ? value : undefined
  } catch (thrown) {
    if (thrown === unparsable) return undefined
    throw thrown
  }
}

const unparsable = Symbol('unparsable')
const fail = (): never => {
  throw unparsable
}

function cleaned(text: string): string {
  return (
    text
      .replace(/\\(?:left|right|displaystyle|,|!|;|:| )|~|\$/g, ' ')
      .replace(/\\[dt]frac/g, '\\frac')
      .replace(/\u2212/g, '-')
      .replace(/\{,\}/g, '')
      .replace(/(\d),(?=\d{3}(?!\d))/g, '$1')
      .replace(/\\text\s*\{[^{}]*\}\s*$/, '')
      .replace(/\^\s*\{?\s*\\circ\s*\}?|\\degree\b/g, '°')
      // A mixed number is a sum: `3\frac12` is 3 + ½.
      .replace(/(?<![\d.^A-Za-z]\s*)(\d{1,15})\s*\\frac\s*(\{\d{1,15}\}|\d)\s*(\{\d{1,15}\}|\d)/g, '($1+\\frac$2$3)')
      .trim()
  )
}

const functions: Readonly<Record<string, (x: number) => number>> = {
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  ln: Math.log,
  exp: Math.exp,
  arcsin: Math.asin,
  arccos: Math.acos,
  arctan: Math.atan,
}

class Parser {
  #at = 0
  /**
   * Number of trigonometric functions around the current position. Inside one, `°` is π/180; elsewhere it is a unit.
   */
  #angles = 0
  constructor(private readonly text: string) {}

  isAtEnd(): boolean {
    this.#skipBlanks()
    return this.#at >= this.text.length
  }

  sum(depth: number): number {
    if (depth > maxDepth) return fail()
    let value = this.#product(depth)
    for (;;) {
      if (this.#take('+')) value += this.#product(depth)
      else if (this.#take('-')) value -= this.#product(depth)
      else return value
    }
  }

  #product(depth: number): number {
    let value = this.#signed(depth)
    for (;;) {
      if (this.#take('\\cdot') || this.#take('\\times') || this.#take('*')) value *= this.#signed(depth)
      else if (this.#take('\\div') || this.#take('/')) value /= this.#signed(depth)
      else if (this.#startsFactor()) value *= this.#power(depth)
      else return value
    }
  }

  #signed(depth: number): number {
    if (depth > maxDepth) return fail()
    if (this.#take('-')) return -this.#signed(depth + 1)
    if (this.#take('+')) return this.#signed(depth + 1)
    return this.#power(depth)
  }

  #power(depth: number): number {
    let base = this.#atom(depth + 1)
    for (;;) {
      if (this.#take('!')) base = factorial(base)
      else if (this.#take('°')) base *= this.#angles > 0 ? Math.PI / 180 : 1
      else if (this.#take('\\%') || this.#take('%')) base /= 100
      else if (this.#take('^')) return base ** this.#argument(depth + 1)
      else return base
    }
  }

  #atom(depth: number): number {
    if (depth > maxDepth) return fail()
    this.#skipBlanks()
    const digits = /^(?:\d+(?:\.\d*)?|\.\d+)/.exec(this.text.slice(this.#at, this.#at + 400))
    if (digits) {
      this.#at += digits[0].length
      return Number(digits[0])
    }
    if (this.#take('(')) return this.#until(')', depth)
    if (this.#take('[')) return this.#until(']', depth)
    if (this.#take('{')) return this.#until('}', depth)
    if (this.#take('\\frac')) return this.#argument(depth) / this.#argument(depth)
    if (this.#take('\\binom')) return binomial(this.#argument(depth), this.#argument(depth))
    if (this.#take('\\sqrt')) {
      const root = this.#take('[') ? this.#until(']', depth) : 2
      const of = this.#argument(depth)
      return root % 2 === 1 && of < 0 ? -((-of) ** (1 / root)) : of ** (1 / root)
    }
    if (this.#take('\\pi') || this.#take('π')) return Math.PI
    for (const [name, apply] of Object.entries(functions)) {
      if (!this.#take(`\\${name}`)) continue
      const isAngle = /^(?:sin|cos|tan)$/.test(name) ? 1 : 0
      this.#angles += isAngle
      const argument = this.#power(depth)
      this.#angles -= isAngle
      return apply(argument)
    }
    return this.#take('e') ? Math.E : fail()
  }

  /** Parses the argument of a LaTeX command: `{…}`, or the next digit or command. */
  #argument(depth: number): number {
    if (depth > maxDepth) return fail()
    if (this.#take('{')) return this.#until('}', depth)
    this.#skipBlanks()
    const digit = /^\d/.exec(this.text.slice(this.#at, this.#at + 1))
    if (!digit) return this.#atom(depth + 1)
    this.#at++
    return Number(digit[0])
  }

  #until(close: string, depth: number): number {
    const value = this.sum(depth + 1)
    return this.#take(close) ? value : fail()
  }

  #startsFactor(): boolean {
    this.#skipBlanks()
    return /^(?:[\d.([{πe]|\\(?:frac|sqrt|pi|binom|sin|cos|tan|ln|exp|arcsin|arccos|arctan)\b)/.test(
      this.text.slice(this.#at, this.#at + 10),
    )
  }

  #take(token: string): boolean {
    this.#skipBlanks()
    if (!this.text.startsWith(token, this.#at)) return false
    const after = this.text[this.#at + token.length]
    // A token that a letter follows is part of a longer command or name, so it does not match.
    if (/[A-Za-z]$/.test(token) && after !== undefined && /[A-Za-z]/.test(after)) return false
    this.#at += token.length
    return true
  }

  #skipBlanks(): void {
    while (this.text[this.#at] === ' ' || this.text[this.#at] === '\n') this.#at++
  }
}

function factorial(n: number): number {
  if (!Number.isInteger(n) || n < 0 || n > 170) return fail()
  let product = 1
  for (let k = 2; k <= n; k++) product *= k
  return product
}

function binomial(n: number, k: number): number {
  if (!Number.isInteger(n) || !Number.isInteger(k) || k < 0 || k > n || Math.min(k, n - k) > 1000) return fail()
  let value = 1
  for (let i = 1; i <= Math.min(k, n - k); i++) value = (value * (n - Math.min(k, n - k) + i)) / i
  return value
}
