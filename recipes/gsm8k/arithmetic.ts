/**
 * Evaluates expressions such as `48/2+0.5*(3-1)` exactly. GSM8K's calculator notes consist of them.
 *
 * in   an expression of decimal numbers, + - * / and parentheses      out  its value as a fraction, or undefined
 * Invariant: never throws. Returns undefined if the text is anything else, divides by zero, nests deeper than 32 or is
 * longer than 200 characters.
 */

/** A fraction in lowest terms; the denominator is positive. */
export interface Fraction {
  readonly numerator: bigint
  readonly denominator: bigint
}

const maxDepth = 32
const maxChars = 200
const lexeme = /\s*(?:(\d+(?:\.\d*)?|\.\d+)|([-+*/()]))/y

export function evaluate(expression: string): Fraction | undefined {
  const tokens = read(expression)
  if (tokens === undefined) return undefined
  let at = 0
  const sum = (depth: number): Fraction | undefined => {
    let left = product(depth)
    while (left !== undefined && (tokens[at] === '+' || tokens[at] === '-')) {
      const sign = tokens[at++] === '+' ? 1n : -1n
      const right = product(depth)
      left =
        right &&
        fraction(
          left.numerator * right.denominator + sign * right.numerator * left.denominator,
          left.denominator * right.denominator,
        )
    }
    return left
  }
  const product = (depth: number): Fraction | undefined => {
    let left = factor(depth)
    while (left !== undefined && (tokens[at] === '*' || tokens[at] === '/')) {
      const times = tokens[at++] === '*'
      const right = factor(depth)
      if (right === undefined) return undefined
      const [over, under] = times ? [right.numerator, right.denominator] : [right.denominator, right.numerator]
      left = fraction(left.numerator * over, left.denominator * under)
    }
    return left
  }
  const factor = (depth: number): Fraction | undefined => {
    if (depth > maxDepth) return undefined
    const token = tokens[at++]
    if (typeof token === 'object') return token
    if (token === '+') return factor(depth + 1)
    if (token === '-') {
      const value = factor(depth + 1)
      return value && fraction(-value.numerator, value.denominator)
    }
    if (token !== '(') return undefined
    const inner = sum(depth + 1)
    return tokens[at++] === ')' ? inner : undefined
  }
  const value = sum(0)
  return at === tokens.length ? value : undefined
}

export const equal = (a: Fraction, b: Fraction): boolean =>
  a.numerator === b.numerator && a.denominator === b.denominator

function read(expression: string): (Fraction | string)[] | undefined {
  const text = expression.trim()
  if (text.length > maxChars) return undefined
  const tokens: (Fraction | string)[] = []
  lexeme.lastIndex = 0
  while (lexeme.lastIndex < text.length) {
    const found = lexeme.exec(text)
    if (found === null) return undefined
    tokens.push(found[1] === undefined ? found[2]! : decimal(found[1]))
  }
  return tokens
}

function decimal(text: string): Fraction {
  const [whole = '', part = ''] = text.split('.')
  return fraction(BigInt(whole + part), 10n ** BigInt(part.length))!
}

/** Reduces a fraction to lowest terms; undefined if the denominator is zero. */
function fraction(numerator: bigint, denominator: bigint): Fraction | undefined {
  if (denominator === 0n) return undefined
  let [a, b] = [numerator < 0n ? -numerator : numerator, denominator < 0n ? -denominator : denominator]
  while (b > 0n) [a, b] = [b, a % b]
  const divisor = denominator < 0n ? -a : a
  return { numerator: numerator / divisor, denominator: denominator / divisor }
}
