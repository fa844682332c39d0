/**
 * Filters the model's text as it arrives: passes on the text without special tokens and tool calls, and tells when a
 * tool call begins.
 *
 * in   pieces of text        out  pieces to show; a call of `onCallBegun` at each opening tag
 * Invariant: no complete special token is shown, and nothing from a tool call's opening tag to its closing tag, however
 * the text is cut into pieces. An unfinished opening tag at the very end is shown as text.
 */
const openTag = '<tool_call>'
const closeTag = '</tool_call>'
const specialToken = /<\|[^|<>\s]{1,40}\|>/g
/** Upper bound on the held-back text that may be the start of a tag or special token, in characters. */
const longestHeld = 44

export interface ShownText {
  add(text: string): void
  end(): void
}

export function shownText(show: (text: string) => void, onCallBegun: () => void): ShownText {
  let held = ''
  let inCall = false

  function flush(isLast: boolean): void {
    for (;;) {
      if (inCall) {
        const close = held.indexOf(closeTag)
        if (close < 0) {
          held = isLast ? '' : held.slice(-closeTag.length)
          return
        }
        held = held.slice(close + closeTag.length)
        inCall = false
      }
      held = held.replace(specialToken, '')
      const open = held.indexOf(openTag)
      if (open >= 0) {
        if (open > 0) show(held.slice(0, open))
        held = held.slice(open + openTag.length)
        inCall = true
        onCallBegun()
        continue
      }
      const safe = isLast ? held.length : held.length - beginning(held)
      if (safe > 0) show(held.slice(0, safe))
      held = held.slice(safe)
      return
    }
  }

  return {
    add(text) {
      held += text
      flush(false)
    },
    end() {
      flush(true)
      inCall = false
    },
  }
}

/** Returns the length of the text's end that may be the start of a tag or special token. */
function beginning(text: string): number {
  const at = text.lastIndexOf('<', text.length)
  if (at < 0 || text.length - at > longestHeld) return 0
  const end = text.slice(at)
  return openTag.startsWith(end) || /^<(?:\|[^|<>\s]{0,40}\|?)?$/.test(end) ? end.length : 0
}
