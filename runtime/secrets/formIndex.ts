/**
 * Finds many texts in another text in one pass. The time hardly grows with the number of known secrets, though all of
 * them begin alike: each position in the text is compared with a few of them, which a binary search finds.
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

/** Number of characters of the text that a hash depends on. */
const hashed = 4
/** The hash has 18 bits, and each character shifts it by 5: after four further ones, nothing of a character is left. */
const mask = (1 << 18) - 1
const next = (hash: number, code: number): number => ((hash << 5) ^ code) & mask

export class FormIndex {
  /** Forms by the hash of their first characters, each list in the order of `isBefore`. */
  private readonly byHash = new Map<number, Form[]>()
  /** 1 for each hash in `byHash`. A hash keeps its mark when its forms are removed: the mark only saves look-ups. */
  private readonly marks = new Uint8Array(mask + 1)

  add(form: Form): void {
    const hash = hashOf(form.form)
    this.marks[hash] = 1
    const others = this.byHash.get(hash)
    if (others === undefined) this.byHash.set(hash, [form])
    else
      others.splice(
        countOf(others, other => isBefore(other, form)),
        0,
        form,
      )
  }

  delete(form: Form): void {
    const hash = hashOf(form.form)
    const left = this.byHash.get(hash)?.filter(other => other !== form) ?? []
    if (left.length === 0) this.byHash.delete(hash)
    else this.byHash.set(hash, left)
  }

  /**
   * Replaces the forms that occur in the text. @param minChars minimum length of the secrets whose forms are replaced
   */
  redact(text: string, minChars: number): string {
    if (this.byHash.size === 0) return text
    let shown = ''
    let copied = 0
    /** Group of overlapping occurrences that is being collected: where its first one begins and its last one ends. */
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

  /**
   * Returns the length of the longest form that occurs at `at`; 0 if none does. By the order of forms, a form that
   * occurs there does not come after the text from `at` on. The last form that does not come after it is the longest
   * one, or shares all characters of the longest one with the text; then the search goes on with the shared characters.
   */
  private longestAt(text: string, at: number, hash: number, minChars: number): number {
    const forms = this.byHash.get(hash) ?? []
    let end = text.length
    while (end - at >= hashed) {
      const upTo = end
      const nearest = forms[countOf(forms, ({ form }) => this.compare(form, text, at, upTo) <= 0) - 1]
      if (nearest === undefined) return 0
      const { form, chars } = nearest
      const shared = sharedChars(form, text, at, end)
      if (shared === form.length && chars >= minChars) return shared
      end = at + Math.min(shared, form.length - 1)
    }
    return 0
  }

  /**
   * Compares a form with the text from `at` to `end`: negative if the form comes first, 0 if both are equal, else
   * positive. Protected for a test that counts the calls.
   */
  protected compare(form: string, text: string, at: number, end: number): number {
    const shared = sharedChars(form, text, at, end)
    if (shared === form.length) return shared - (end - at)
    return at + shared === end ? 1 : form.charCodeAt(shared) - text.charCodeAt(at + shared)
  }
}

/** Order of forms; of equal ones the form of the longest secret is the last, so that a search meets it first. */
const isBefore = (a: Form, b: Form): boolean => (a.form === b.form ? a.chars < b.chars : a.form < b.form)

/** Returns how many forms at the beginning of an ordered list fulfil a condition that no later one fulfils. */
function countOf(forms: readonly Form[], isMet: (form: Form) => boolean): number {
  let [from, to] = [0, forms.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (isMet(forms[middle]!)) from = middle + 1
    else to = middle
  }
  return from
}

/** Returns how many characters a form shares with the text from `at` to `end`. */
function sharedChars(form: string, text: string, at: number, end: number): number {
  const most = Math.min(form.length, end - at)
  let shared = 0
  while (shared < most && form.charCodeAt(shared) === text.charCodeAt(at + shared)) shared++
  return shared
}

function hashOf(form: string): number {
  let hash = 0
  for (let at = 0; at < hashed; at++) hash = next(hash, form.charCodeAt(at))
  return hash
}
