/**
 * Parses JSON without losing digits: a number that a double would round becomes a string of its digits.
 *
 * in   JSON text        out  its value as JSON.parse returns it, except for those numbers
 * JSON.parse of Node 20 does not pass a number's text to its reviver, so such numbers are put in quotes first.
 * Invariant: linear time. A number stays a number if it is in a double's range and has at most 15 significant digits,
 * or if JavaScript prints the double with the very same text.
 */

/** Parses JSON as described in this file's header. @throws SyntaxError like JSON.parse */
export function parseExactJson(text: string): unknown {
  const value: unknown = JSON.parse(text)
  return mayLose.test(text) ? JSON.parse(withNumbers(text, digits => (isKept(digits) ? digits : `"${digits}"`))) : value
}

/** Matches if a number may lose digits: 16 digits or points in a row, or an exponent. A double keeps any 15 digits. */
const mayLose = /\d[\d.]{15}|\d[eE][+-]?\d/
const number = /-?\d[\d.eE+-]*/y

/** Replaces every number outside strings in valid JSON text by what `replace` returns for its text. */
export function withNumbers(text: string, replace: (digits: string) => string): string {
  const pieces: string[] = []
  let from = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === 0x22) at = endOfString(text, at)
    else if (code === 0x2d || (code >= 0x30 && code <= 0x39)) {
      number.lastIndex = at
      const [digits] = number.exec(text)!
      pieces.push(text.slice(from, at), replace(digits))
      from = at + digits.length
      at += digits.length - 1
    }
  }
  pieces.push(text.slice(from))
  return pieces.join('')
}

function isKept(digits: string): boolean {
  const value = Number(digits)
  const significant = digits
    .replace(/[eE].*/, '')
    .replace(/[-.]/g, '')
    .replace(/^0+|0+$/g, '')
  return (
    Number.isFinite(value) &&
    (value !== 0 || significant === '') &&
    (significant.length <= 15 || String(value) === digits)
  )
}

/** Returns the index of the closing quote of the string that starts at `start`, in valid JSON text. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    at = text.indexOf('"', at)
    let slashes = 0
    while (text[at - 1 - slashes] === '\\') slashes++
    if (slashes % 2 === 0) return at
  }
}
