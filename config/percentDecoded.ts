/** Decodes percent-encoded text (the fragment of a URL, a part of its path, a header's value) without throwing. */

/** Returns the decoded text; undefined if it has a `%` that begins no escape. */
export function percentDecoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
