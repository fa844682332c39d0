/**
 * Parses calls in ToolACE's form: `[Get Weather(city="Bonn", days=[1, 2]), now()]`.
 *
 * in   a text        out  names and arguments; undefined if the text has another form
 * Invariant: never throws. Values are Python literals (text, numbers, True/False/None, lists, tuples, dicts), or JSON's
 * true/false/null, nested at most 32 deep.
 */

export interface WrittenCall {
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
}

const maxDepth = 32
const words: Readonly<Record<string, unknown>> = {
  True: true,
  False: false,
  None: null,
  true: true,
  false: false,
  null: null,
}
const escapes: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '\\': '\\', "'": "'", '"': '"' }

class NoCall extends Error {}

export function pythonCalls(text: string): readonly WrittenCall[] | undefined {
  const source = text.trim()
  if (!source.startsWith('[') || !source.endsWith(']')) return undefined
  let at = 1
  const fail = (): never => {
    throw new NoCall()
  }
  const blank = () => {
    while (/\s/.test(source[at] ?? '')) at++
  }
  const take = (char: string) => {
    blank()
    if (source[at] !== char) fail()
    at++
  }
  const until = (pattern: RegExp): string => {
    const begin = at
    while (at < source.length && !pattern.test(source[at]!)) at++
    return source.slice(begin, at).trim()
  }
  const quoted = (): string => {
    const quote = source[at++]
    let value = ''
    while (source[at] !== quote) {
      if (at >= source.length) fail()
      if (source[at] === '\\') value += escapes[source[++at] ?? ''] ?? `\\${source[at]}`
      else value += source[at]
      at++
    }
    at++
    return value
  }
  /** Reads comma-separated items up to `end`; a comma after the last item is allowed. */
  const items = (end: string, item: () => void) => {
    for (blank(); source[at] !== end; blank()) {
      item()
      blank()
      if (source[at] === ',') at++
      else if (source[at] !== end) fail()
    }
    at++
  }
  const value = (depth: number): unknown => {
    blank()
    if (depth > maxDepth) fail()
    const char = source[at] ?? ''
    if (char === '"' || char === "'") return quoted()
    if (char === '[' || char === '(') {
      at++
      const list: unknown[] = []
      items(char === '[' ? ']' : ')', () => list.push(value(depth + 1)))
      return list
    }
    if (char === '{') {
      at++
      const pairs: [string, unknown][] = []
      items('}', () => {
        const key = value(depth + 1)
        take(':')
        pairs.push([String(key), value(depth + 1)])
      })
      return Object.fromEntries(pairs)
    }
    const word = until(/[,\])}\s]/)
    if (Object.hasOwn(words, word)) return words[word]
    return /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(word) ? Number(word) : fail()
  }
  const calls: WrittenCall[] = []
  try {
    items(']', () => {
      const name = until(/[(\]=,]/)
      take('(')
      const pairs: [string, unknown][] = []
      items(')', () => {
        const key = until(/[=,()]/)
        take('=')
        pairs.push([key, value(0)])
      })
      if (name === '') fail()
      calls.push({ name, arguments: Object.fromEntries(pairs) })
    })
  } catch (thrown) {
    if (thrown instanceof NoCall) return undefined
    throw thrown
  }
  return at === source.length && calls.length > 0 ? calls : undefined
}
