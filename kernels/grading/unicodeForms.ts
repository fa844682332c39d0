/**
 * Text in one of Unicode's ways to write it: composed letters, and no wide or narrow doubles of signs and blanks.
 *
 * in   a text        out  the same; what Unicode calls compatible and a reader does not (`5²` and `52`, `½` and `1⁄2`) stays apart
 * Invariant: linear time, never throws.
 */
const doubles = /[\uff01-\uff5e\uff61-\uffdc\uffe0-\uffee]+|[\u2000-\u200a\u202f\u00a0\u3000]/g

export const inOneForm = (text: string): string => text.normalize('NFC').replace(doubles, run => run.normalize('NFKC'))
