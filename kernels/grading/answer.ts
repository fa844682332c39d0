/**
 * The answer of a response, and when two answers are the same integer.
 *
 * in   the text of the model's turns        out  what its last \boxed{…} holds; whether two answers are one integer
 * Invariant: linear time, never throws. `sameInteger` decides only between two integers; everything else is undefined
 * and left to math-verify.
 */
import { lastAnswer } from './answerTags'

/** answer-tag: inside the last `<answer>…</answer>` only (the paper). anywhere: the whole response (the release). */
export type AnswerPlace = 'answer-tag' | 'anywhere'

/** What the last balanced `\boxed{…}` holds, trimmed; null where there is none. An unbalanced one is passed over. */
export function extractAnswer(response: string, place: AnswerPlace): string | null {
  const text = place === 'anywhere' ? response : lastAnswer(response)
  return text === null ? null : lastBoxed(text)
}

function lastBoxed(text: string): string | null {
  // One pass from the left: braces opened by \boxed, innermost last. Escaped braces (\{ and \}) do not count.
  const open: (number | null)[] = []
  let found: { readonly start: number; readonly end: number } | null = null
  for (let at = 0; at < text.length; at++) {
    const c = text[at]
    if (c === '\\') {
      const brace = braceAfterBoxed(text, at)
      if (brace >= 0) {
        open.push(brace + 1)
        at = brace
      } else if (!text.startsWith('\\boxed', at + 1)) at++ // `\\boxed`, as in a quoted string, is meant as a box
    } else if (c === '{') open.push(null)
    else if (c === '}') {
      const start = open.pop()
      // Of nested boxes the inner one begins last.
      if (start !== undefined && start !== null && (found === null || start > found.start)) found = { start, end: at }
    }
  }
  return found === null ? null : text.slice(found.start, found.end).trim()
}

/** Index of the brace of a `\boxed {` that begins at `at`, else −1. */
function braceAfterBoxed(text: string, at: number): number {
  if (!text.startsWith('\\boxed', at)) return -1
  let brace = at + 6
  // Bounded: a run of blanks after every \boxed would make this quadratic.
  while (brace < at + 16 && isBlank(text[brace])) brace++
  return text[brace] === '{' ? brace : -1
}

const isBlank = (c: string | undefined) => c === ' ' || c === '\n' || c === '\t' || c === '\r'

const longest = 10_000
const thinSpace = /\\[,;:! ]|\{,\}|~/g

/**
 * The integer that a text is, as its shortest decimal form (`-17`), undefined where it is none.
 *
 * Accepted: a sign (+, -, −), leading zeros, thousands in groups of three after a comma, `{,}`, `\,`, `\;`, `\!` or `~`,
 * a fraction of zeros (`42.0`, `42.`), and around all of it `$…$`, `\(…\)`, `\[…\]` or `{…}`. `-0` is `0`. Not accepted,
 * and so left to math-verify: words, units, per cent, fractions, powers, `1e3`, groups of any other length.
 */
export function normalizeInteger(text: string): string | undefined {
  if (text.length > longest) return undefined
  let inner = unwrap(text.trim())
  // `1{,}234` and `1\,234` are `1,234`; `\!,` (a comma drawn closer) as well.
  inner = inner.replace(/\\!\s*,|,\s*\\!/g, ',').replace(thinSpace, ',')
  const found = /^([+\-\u2212]?)\s*([0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)(?:\.0*)?$/.exec(inner)
  if (!found) return undefined
  const digits = found[2]!.replaceAll(',', '').replace(/^0+(?=[0-9])/, '')
  return digits !== '0' && (found[1] === '-' || found[1] === '\u2212') ? `-${digits}` : digits
}

/** Whether two answers are the same integer; undefined unless both are integers. */
export function sameInteger(a: string, b: string): boolean | undefined {
  const left = normalizeInteger(a)
  const right = normalizeInteger(b)
  return left === undefined || right === undefined ? undefined : left === right
}

const wraps = [
  ['$$', '$$'],
  ['$', '$'],
  ['\\(', '\\)'],
  ['\\[', '\\]'],
  ['{', '}'],
] as const

function unwrap(text: string): string {
  for (let depth = 0; depth < 4; depth++) {
    const wrap = wraps.find(
      ([open, close]) => text.length > open.length + close.length && text.startsWith(open) && text.endsWith(close),
    )
    if (!wrap) return text
    text = text.slice(wrap[0].length, -wrap[1].length).trim()
  }
  return text
}
