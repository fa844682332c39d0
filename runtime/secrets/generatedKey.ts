/**
 * The keys that Troupe makes for sessions of agents and for servers that it starts: `troupe-UUID`. The redactor
 * recognises them by this form, so it need not learn and forget thousands of them.
 *
 * in   a UUID; a text        out  the key; the text with [redacted] in place of each key
 * Invariant: a key has only characters that JSON, URLs and HTML leave as they are, so besides the key itself only its
 * base64 is looked for: alone, and within a longer text at each of the three places of a group of three bytes.
 */

const prefix = 'troupe-'
/** Pattern of a UUID; `last`: number of characters in its last part. */
const uuid = (last = 12) => `[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{${last}}`
const keyBytes = prefix.length + 36
const plain = new RegExp(prefix + uuid(), 'g')
/** A key without its first and last byte: base64 characters that hold their bits may hold bits of neighbours, too. */
const inner = new RegExp(`^${prefix.slice(1)}${uuid(11)}`)

/** Makes a key. @param unique a UUID that nobody can guess, from `Effects.unique` */
export const generatedKey = (unique: string): string => prefix + unique

/**
 * Patterns for the base64 of a key that begins `at` = 0, 1 or 2 bytes after the beginning of a group of three bytes.
 */
const encodings = [0, 1, 2].map(at => {
  /**
   * Number of base64 characters before the first one that depends on the key alone. `endOf`: index after the last one.
   */
  const skipped = Math.ceil((at * 8) / 6)
  const endOf = (bytes: number) => Math.floor(((at + bytes) * 8) / 6)
  const begin = Buffer.from('\0'.repeat(at) + prefix)
    .toString('base64')
    .slice(skipped, endOf(prefix.length))
  const rest = endOf(keyBytes) - skipped - begin.length
  // A further character belongs to the key if padding follows it: then the key is the end of the text.
  return { at, skipped, begin, pattern: new RegExp(`${begin}[\\w+/-]{${rest}}(?:[\\w+/-](?==))?`, 'g') }
})

export function redactGeneratedKeys(text: string): string {
  let shown = text.replace(plain, '[redacted]')
  for (const { at, skipped, begin, pattern } of encodings) {
    if (!shown.includes(begin)) continue
    shown = shown.replace(pattern, found => {
      const bytes = Buffer.from('A'.repeat(skipped) + found, 'base64')
      return inner.test(bytes.toString('latin1', at + 1)) ? '[redacted]' : found
    })
  }
  return shown
}
