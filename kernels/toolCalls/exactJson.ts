/**
 * JSON.parse that keeps the digits: a number of more than a double holds comes out as its text.
 *
 * in   a text of JSON        out  its value, as JSON.parse gives it but for those numbers
 * Node 20 does not show a reviver the text of a number, so these are put into quotes before.
 * Invariant: linear time. A number that a double holds exactly, or to the last of its digits, is a number as ever.
 */

/** @throws SyntaxError as JSON.parse does */
export function parseExactJson(text: string): unknown {
  const value: unknown = JSON.parse(text)
  return mayLose.test(text) ? JSON.parse(withNumbers(text, digits => (isKept(digits) ? digits : `"${digits}"`))) : value
}

/** Sixteen digits in a row or around a point, or an exponent: fifteen are never lost. */
const mayLose = /\d[\d.]{15}|\d[eE][+-]?\d/
const number = /-?\d[\d.eE+-]*/y

/** A text that is JSON with other numbers, or whatever else stands for them. */
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

/** Of a text that is JSON: where the string that begins at `start` has its closing quote. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    at = text.indexOf('"', at)
    let slashes = 0
    while (text[at - 1 - slashes] === '\\') slashes++
    if (slashes % 2 === 0) return at
  }
}
