/**
 * Strips markup from an answer: a leading `=`, final punctuation marks, blanks, what surrounds it (`$…$`, `\(…\)`,
 * `\[…\]`, `**…**`, `\left. … \right.`) and commands that change only its look, such as `\bf`. Also writes Python's
 * power `2**10` as LaTeX.
 *
 * in   an answer        out  the same answer without markup; unchanged if it is longer than 10,000 characters
 * Invariant: linear time, never throws. Text that could be a part of the value stays, such as `5..` and `1, 2, …`.
 */
const maxChars = 10_000
/** LaTeX commands that change only how a formula looks. */
const layout = /\\(?:hspace|phantom)\*?\s*\{[^{}]*\}|\\(?:bf|displaystyle|textstyle|checkmark|blacksquare)(?![A-Za-z])/g
const blankEnd = /(?:\s|~|\\[ ,;:!]|\\q?quad|\\)$/
const mark = /(?:(?<![.,;:\\]|\\right\s?)[.,;:]|\\text\s*\{\s*[.,;:]\s*\})$/
const wrapped = [
  /^\${1,2}((?:[^$\\]|\\[\s\S])*)\${1,2}$/,
  /^\\\(([\s\S]*)\\\)$/,
  /^\\\[([\s\S]*)\\\]$/,
  /^\*\*([^*]*)\*\*$/,
  /^\\left\s*\.((?:(?!\\right)[\s\S])*)\\right\s*\.$/,
]

export function stripMarkup(text: string): string {
  if (text.length > maxChars) return text
  let inner = text
    .replace(layout, ' ')
    .replace(/^\s*=(?!=)/, '')
    .trim()
  for (let before = ''; before !== inner; ) {
    before = inner
    inner = withoutFinalMark(inner)
    const found = wrapped.map(wrap => wrap.exec(inner)?.[1]).find(one => one !== undefined)
    if (found !== undefined && !/\\[()[\]]/.test(found)) inner = found.trim()
  }
  return inner.includes('**') ? inner.replace(power, inBraces) : inner
}

function withoutFinalMark(text: string): string {
  const rest = withoutFinalBlanks(text)
  const found = mark.exec(rest.slice(-40))
  return found === null ? rest : withoutFinalBlanks(rest.slice(0, -found[0].length))
}

function withoutFinalBlanks(text: string): string {
  let end = text.length
  for (;;) {
    const found = blankEnd.exec(text.slice(Math.max(0, end - 8), end))
    if (found === null) return text.slice(0, end)
    end -= found[0].length
  }
}

/** Matches Python's `2**10`. The replacement has braces, since a LaTeX power without braces takes one digit only. */
const power =
  /(?<=[\w)}\]])(\s?)\*\*\1(-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])|-?\([^()]*\)|\{[^{}]*\}|\\[A-Za-z]+|(?=[\w(\\{-]))/g
const inBraces = (_: string, _blank: string, raised: string) =>
  raised === '' || raised.startsWith('{') ? `^${raised}` : `^{${raised}}`
