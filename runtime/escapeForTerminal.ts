/**
 * Escapes text that a model or a tool wrote before it reaches a terminal or a page, since it may hold control
 * sequences.
 */

/**
 * Replaces control characters, line separators and text-direction marks by visible escapes; line breaks and tabs stay.
 */
export function escapeForTerminal(text: string): string {
  return text.replace(/[\p{Cc}\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, c => {
    if (c === '\n' || c === '\t') return c
    return c === '\r' ? '\\r' : `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
}
