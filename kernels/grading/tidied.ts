/**
 * An answer without what only closes its sentence or sets it: a final mark, blanks, `$…$`, `\(…\)`, `**…**`, `\bf`; and `**` as a power.
 *
 * in   an answer        out  the same answer
 * Invariant: linear time, never throws. Nothing that could be a part of the value goes: `5..` and `1, 2, …` stay.
 */
const longest = 10_000
/** Commands that set, and say nothing. */
const silent = /\\(?:hspace|phantom)\*?\s*\{[^{}]*\}|\\(?:bf|displaystyle|textstyle|checkmark|blacksquare)(?![A-Za-z])/g
const blankEnd = /(?:\s|~|\\[ ,;:!]|\\q?quad|\\)$/
const mark = /(?:(?<![.,;:\\]|\\right\s?)[.,;:]|\\text\s*\{\s*[.,;:]\s*\})$/
const wrapped = [
  /^\${1,2}((?:[^$\\]|\\[\s\S])*)\${1,2}$/,
  /^\\\(([\s\S]*)\\\)$/,
  /^\\\[([\s\S]*)\\\]$/,
  /^\*\*([^*]*)\*\*$/,
  /^\\left\s*\.((?:(?!\\right)[\s\S])*)\\right\s*\.$/,
]

export function tidied(text: string): string {
  if (text.length > longest) return text
  let inner = text
    .replace(silent, ' ')
    .replace(/^\s*=(?!=)/, '')
    .trim()
  for (let before = ''; before !== inner; ) {
    before = inner
    inner = withoutEnd(inner)
    const found = wrapped.map(wrap => wrap.exec(inner)?.[1]).find(one => one !== undefined)
    if (found !== undefined && !/\\[()[\]]/.test(found)) inner = found.trim()
  }
  return inner.includes('**') ? inner.replace(power, inBraces) : inner
}

function withoutEnd(text: string): string {
  const rest = withoutBlanks(text)
  const found = mark.exec(rest.slice(-40))
  return found === null ? rest : withoutBlanks(rest.slice(0, -found[0].length))
}

function withoutBlanks(text: string): string {
  let end = text.length
  for (;;) {
    const found = blankEnd.exec(text.slice(Math.max(0, end - 8), end))
    if (found === null) return text.slice(0, end)
    end -= found[0].length
  }
}

/** Python's `2**10`: in LaTeX a power has one digit, or braces. */
const power =
  /(?<=[\w)}\]])(\s?)\*\*\1(-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])|-?\([^()]*\)|\{[^{}]*\}|\\[A-Za-z]+|(?=[\w(\\{-]))/g
const inBraces = (_: string, _blank: string, raised: string) =>
  raised === '' || raised.startsWith('{') ? `^${raised}` : `^{${raised}}`
