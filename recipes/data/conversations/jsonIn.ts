/** JSON values inside a text: function lists in prompts. Never throws. */

/** The values that stand one after the other from the first `open` on; what follows them is left alone. */
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

/** Only blanks and commas may stand between two values. */
function nextOf(text: string, from: number, open: string): number {
  const found = /^[\s,]*/.exec(text.slice(from + 1))![0].length + from + 1
  return text[found] === open ? found : -1
}

/** Behind the bracket that closes the one at `begin`; −1 where none does. */
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
