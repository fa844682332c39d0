/**
 * Normalises the Unicode of a text: composes letters (NFC), then replaces full-width and half-width signs and wide or
 * no-break blanks (U+00A0, U+2000 to U+200A, U+202F, U+3000) by their plain forms (NFKC of these signs only).
 *
 * in   a text        out  the normalised text. Limit: a full-width letter with a combining mark is not composed
 * NFKC of the whole text would go too far: `5²` and `52`, or `½` and `1⁄2`, stay different here.
 * Invariant: linear time, never throws.
 */
const widthVariants = /[\uff01-\uff5e\uff61-\uffdc\uffe0-\uffee]+|[\u2000-\u200a\u202f\u00a0\u3000]/g

export const normalizeUnicode = (text: string): string =>
  text.normalize('NFC').replace(widthVariants, run => run.normalize('NFKC'))
