/**
 * Finds many texts in another text in one pass, so that the time does not grow with the number of known secrets.
 *
 * in   forms of secrets; a text        out  the text with [redacted] in place of each form
 * Invariant: every character that belongs to an occurrence of a form is replaced, also where occurrences overlap; those
 * that overlap are replaced as one.
 */

/** A text to look for, of at least 4 characters. */
export interface Form {
  readonly form: string
  /** Length of the secret that it is a form of. */
  readonly chars: number
}

/** Characters that the hash of a place depends on. */
const hashed = 4
/** The hash has 18 bits, and each character shifts it by 5: after four further ones, nothing of a character is left. */
const mask = (1 << 18) - 1
const next = (hash: number, code: number): number => ((hash << 5) ^ code) & mask

export class FormIndex {
  /** Forms by the hash of their first characters. */
  private readonly byHash = new Map<number, Form[]>()
  /** 1 for each hash in `byHash`. A hash keeps its mark when its forms are removed: the mark only saves look-ups. */
  private readonly marks = new Uint8Array(mask + 1)

  add(form: Form): void {
    const hash = hashOf(form.form)
    this.marks[hash] = 1
    const others = this.byHash.get(hash)
    if (others === undefined) this.byHash.set(hash, [form])
    else others.push(form)
  }

  delete(form: Form): void {
    const hash = hashOf(form.form)
    const left = this.byHash.get(hash)?.filter(other => other !== form) ?? []
    if (left.length === 0) this.byHash.delete(hash)
    else this.byHash.set(hash, left)
  }

  /** @param minChars length of a secret from which its forms are replaced */
  redact(text: string, minChars: number): string {
    if (this.byHash.size === 0) return text
    let shown = ''
    let copied = 0
    /** Occurrences that overlap: where the first begins and the last ends. */
    let [from, end] = [0, 0]
    let hash = 0
    for (let last = 0; last < text.length; last++) {
      hash = next(hash, text.charCodeAt(last))
      const at = last - hashed + 1
      if (at < 0 || this.marks[hash] === 0) continue
      const length = this.longestAt(text, at, hash, minChars)
      if (length === 0) continue
      if (at >= end) {
        if (end > from) shown += `${text.slice(copied, from)}[redacted]`
        copied = end
        from = at
      }
      end = Math.max(end, at + length)
    }
    return end > from ? `${shown}${text.slice(copied, from)}[redacted]${text.slice(end)}` : text
  }

  private longestAt(text: string, at: number, hash: number, minChars: number): number {
    let longest = 0
    for (const { form, chars } of this.byHash.get(hash) ?? [])
      if (chars >= minChars && form.length > longest && text.startsWith(form, at)) longest = form.length
    return longest
  }
}

function hashOf(form: string): number {
  let hash = 0
  for (let at = 0; at < hashed; at++) hash = next(hash, form.charCodeAt(at))
  return hash
}
