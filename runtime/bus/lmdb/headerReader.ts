/**
 * Headers out of the text they are stored in, made cheap by what records have in common: neighbours mostly carry the same
 * names and many of the same values, so an object that fits is copied and only what differs is cut out and set.
 *
 * Invariant: what is returned is a fresh object that nobody else holds, equal to what was stored.
 */
export class HeaderReader {
  private names: string[] = []
  private values: string[] = []
  /** Holds `names` and `values`; never handed out. */
  private last: Record<string, string> = {}

  /** `lengths` are those of name, value, name, value…, in UTF-16 units; the first name begins at `cut`. */
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
      // Defined, not assigned: `__proto__` is a name like any other.
      Object.defineProperty(this.last, name, { value, enumerable: true, configurable: true, writable: true })
    }
  }
}
