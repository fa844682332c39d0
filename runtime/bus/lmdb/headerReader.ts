/**
 * Decodes record headers. Consecutive records mostly have the same header names and many equal values, so the previous
 * object is copied and only the values that differ are decoded.
 *
 * in   the stored text and the lengths of names and values      out  headers
 * Invariant: each result is a new object that nobody else holds, equal to the stored headers.
 */
export class HeaderReader {
  private names: string[] = []
  private values: string[] = []
  /** Headers of the previous record: each of `names` with its value in `values`. Callers get copies of this object. */
  private last: Record<string, string> = {}

  /**
   * Decodes the headers of one record.
   * @param cut start of the first name in the text
   * @param lengths of name, value, name, value, …, in UTF-16 units
   */
  read(text: string, cut: number, lengths: readonly number[], count: number): Record<string, string> {
    if (count !== this.names.length || !this.sameNames(text, cut, lengths)) this.begin(text, cut, lengths, count)
    let at = cut
    for (let i = 0; i < count; i++) {
      at += lengths[2 * i]!
      const length = lengths[2 * i + 1]!
      const value = this.values[i]!
      if (value.length !== length || !text.startsWith(value, at)) {
        const changed = text.substring(at, at + length)
        this.values[i] = changed
        this.last[this.names[i]!] = changed
      }
      at += length
    }
    return { ...this.last }
  }

  private sameNames(text: string, cut: number, lengths: readonly number[]): boolean {
    let at = cut
    for (let i = 0; i < this.names.length; i++) {
      const name = this.names[i]!
      const length = lengths[2 * i]!
      if (name.length !== length || !text.startsWith(name, at)) return false
      at += length + lengths[2 * i + 1]!
    }
    return true
  }

  private begin(text: string, cut: number, lengths: readonly number[], count: number): void {
    this.names = []
    this.values = []
    this.last = {}
    let at = cut
    for (let i = 0; i < count; i++) {
      const end = at + lengths[2 * i]!
      const name = text.substring(at, end)
      at = end + lengths[2 * i + 1]!
      const value = text.substring(end, at)
      this.names.push(name)
      this.values.push(value)
      // The property is defined, not assigned, so that `__proto__` is a name like any other.
      Object.defineProperty(this.last, name, { value, enumerable: true, configurable: true, writable: true })
    }
  }
}
