/**
 * Finds the first fault of a JSON text, in words that never change: they go into facts that are replayed, while the
 * messages of JSON.parse differ between versions of JavaScript engines.
 *
 * in   a text
 * out  null if it is JSON and not nested too deep; else the fault, with its character (0-based) unless the text ends
 *      there
 * Invariant: one pass, no recursion: neither the length nor the nesting of a hostile text can exhaust the stack.
 */

/** Upper bound on the nesting of values. Deeper values are refused, since callers may recurse over them. */
const maxDepth = 64

type Expecting = 'value' | 'value or ]' | 'key' | 'key or }' | ':' | ', or ]' | ', or }' | 'end'

const words: Readonly<Record<Expecting, string>> = {
  value: 'expected a value',
  'value or ]': 'expected a value or ]',
  key: 'expected a key in double quotes',
  'key or }': 'expected a key in double quotes or }',
  ':': 'expected : after the key',
  ', or ]': 'expected , or ]',
  ', or }': 'expected , or }',
  end: 'unexpected text after the value',
}

const space = new Set([' ', '\n', '\r', '\t'])
const atom = /true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y

/** Returns the first fault of a JSON text, such as `expected , or } at character 12`, or null. */
export function jsonFault(text: string): string | null {
  const open: ('{' | '[')[] = []
  let expecting: Expecting = 'value'
  let at = 0
  const afterValue = (): Expecting => (open.length === 0 ? 'end' : open[open.length - 1] === '{' ? ', or }' : ', or ]')
  for (;;) {
    while (at < text.length && space.has(text[at]!)) at++
    if (at >= text.length) return expecting === 'end' ? null : `the text ends: ${words[expecting]}`
    const c = text[at]!
    const fault = `${words[expecting]} at character ${at}`
    switch (expecting) {
      case 'end':
        return fault
      case ':':
        if (c !== ':') return fault
        expecting = 'value'
        at++
        continue
      case ', or ]':
      case ', or }':
        if (c === ',') expecting = expecting === ', or }' ? 'key' : 'value'
        else if (c === expecting[expecting.length - 1]) {
          open.pop()
          expecting = afterValue()
        } else return fault
        at++
        continue
      case 'key':
      case 'key or }': {
        if (c === '}' && expecting === 'key or }') {
          open.pop()
          expecting = afterValue()
          at++
          continue
        }
        if (c !== '"') return fault
        const end = stringEnd(text, at)
        if (typeof end === 'string') return end
        at = end
        expecting = ':'
        continue
      }
      case 'value or ]':
        if (c === ']') {
          open.pop()
          expecting = afterValue()
          at++
          continue
        }
    }
    // A value must begin here, at `at`.
    if (c === '{' || c === '[') {
      if (open.length >= maxDepth) return `nested deeper than ${maxDepth} levels at character ${at}`
      open.push(c)
      expecting = c === '{' ? 'key or }' : 'value or ]'
      at++
    } else if (c === '"') {
      const end = stringEnd(text, at)
      if (typeof end === 'string') return end
      at = end
      expecting = afterValue()
    } else {
      atom.lastIndex = at
      const found = atom.exec(text)
      if (!found) return fault
      at += found[0].length
      expecting = afterValue()
    }
  }
}

/** Returns the index after the closing quote of the string that starts at `start`, or the string's fault. */
function stringEnd(text: string, start: number): number | string {
  for (let at = start + 1; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === 0x22) return at + 1
    if (code < 0x20) return `a line break or control character inside a string at character ${at}`
    if (code === 0x5c) {
      const escaped = text[at + 1] ?? ''
      if (escaped === 'u') {
        if (!/^[0-9a-fA-F]{4}$/.test(text.slice(at + 2, at + 6))) return `a bad \\u escape at character ${at}`
        at += 5
      } else if (escaped !== '' && '"\\/bfnrt'.includes(escaped)) at++
      else return `a bad escape at character ${at}`
    }
  }
  return `the string that begins at character ${start} is not closed`
}
