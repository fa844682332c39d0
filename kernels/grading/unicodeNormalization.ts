/**
 * Normalises the Unicode of a text: composed letters (NFC), and plain forms of full-width and half-width signs and of
 * blanks.
 *
 * in   a text        out  the same text; two texts that differ only in these forms become equal
 * NFKC alone would go too far: `5²` and `52`, or `½` and `1⁄2`, stay different here.
 * Invariant: linear time, never throws.
 */
const widthVariants = /[\uff01-\uff5e\uff61-\uffdc\uffe0-\uffee]+|[\u2000-\u200a\u202f\u00a0\u3000]/g

export const normalizeUnicode = (text: string): string =>
  text.normalize('NFC').replace(widthVariants, run => run.normalize('NFKC'))
