/**
 * Assembles a person's messages at a terminal: one line is a message; `\` at its end continues it; `"""` encloses
 * several lines.
 *
 * in   lines        out  messages, and the prompt to show before the next line
 */
export interface UserLines {
  /** Adds a line. Returns the message when it is complete, undefined while it continues. */
  add(line: string): string | undefined
  readonly prompt: string
  /** Discards a half-written message; returns false if there was none. */
  clear(): boolean
}

const fence = '"""'

export function userLines(): UserLines {
  let lines: string[] = []
  let fenced = false
  const whole = () => {
    const text = lines.join('\n')
    lines = []
    fenced = false
    return text
  }
  return {
    get prompt() {
      return lines.length > 0 || fenced ? '… ' : '> '
    },
    add(line) {
      if (fenced) {
        if (!line.trimEnd().endsWith(fence)) {
          lines.push(line)
          return undefined
        }
        const last = line.trimEnd().slice(0, -fence.length)
        if (last !== '') lines.push(last)
        return whole()
      }
      if (lines.length === 0 && line.trimStart().startsWith(fence)) {
        const first = line.trimStart().slice(fence.length)
        if (first.trimEnd().endsWith(fence) && first.trim().length >= fence.length)
          return first.trimEnd().slice(0, -fence.length)
        fenced = true
        if (first !== '') lines.push(first)
        return undefined
      }
      if (line.endsWith('\\')) {
        lines.push(line.slice(0, -1))
        return undefined
      }
      lines.push(line)
      return whole()
    },
    clear() {
      const isBegun = lines.length > 0 || fenced
      whole()
      return isBegun
    },
  }
}
