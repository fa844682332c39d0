/**
 * Finds JSON values inside a text, such as function lists in prompts.
 *
 * in   a text, the opening bracket ([ or {) of the values        out  the first value and those that directly follow it
 * Invariant: pure and never throws; text after the last value is ignored.
 */

/**
 * Returns the JSON values that begin with `open`, from the first `open` on, as long as only blanks and commas stand
 * between them.
 */
export function jsonValuesIn(text: string, open: '[' | '{'): readonly unknown[] {
  const values: unknown[] = []
  for (let begin = text.indexOf(open); begin >= 0; begin = nextOf(text, begin, open)) {
    const end = endOf(text, begin)
    if (end < 0) break
    try {
      values.push(JSON.parse(text.slice(begin, end)))
    } catch {
      break
    }
    begin = end - 1
  }
  return values
}

/** Returns the position of the next `open` after `from`; −1 if more than blanks and commas comes before it. */
function nextOf(text: string, from: number, open: string): number {
  const found = /^[\s,]*/.exec(text.slice(from + 1))![0].length + from + 1
  return text[found] === open ? found : -1
}

/** Returns the position after the bracket that closes the one at `begin`; −1 if none does. */
function endOf(text: string, begin: number): number {
  let depth = 0
  let inText = false
  for (let at = begin; at < text.length; at++) {
    const char = text[at]
    if (inText) {
      if (char === '\\') at++
      else if (char === '"') inText = false
    } else if (char === '"') inText = true
    else if (char === '[' || char === '{') depth++
    else if ((char === ']' || char === '}') && --depth === 0) return at + 1
  }
  return -1
}
