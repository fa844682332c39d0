/**
 * Compares what a page says that a command prints with what it printed: the words, not the figures.
 *
 * in   lines of the page, text of the command     out  the first line of the page that the command did not print
 * Lines have to come in the page's order; the command may print others between them, as at `…`. `…` within a line stands for any text.
 */
const special = /[.*+?^${}()|[\]\\]/g

/** A line without its figures: digests, numbers, bars and runs of blanks are one sign each. */
const shape = (line: string) =>
  line
    .trim()
    .replace(/\b[0-9a-f]{12,}\b/g, '0')
    .replace(/[+-]?\d+([.,]\d+)*(e[+-]?\d+)?/g, '0')
    .replace(/\/\S*\//g, '/')
    .replace(/[█·]+/g, '█')
    .replace(/\s+/g, ' ')

export function missingLine(page: readonly string[], printed: string): string | undefined {
  const lines = printed.split('\n').map(shape)
  let at = 0
  for (const line of page) {
    if (['', '…'].includes(line.trim())) continue
    const pattern = new RegExp(`^${shape(line).replace(special, '\\$&').replaceAll('…', '.*')}$`)
    const found = lines.findIndex((one, index) => index >= at && pattern.test(one))
    if (found < 0) return line
    at = found + 1
  }
  return undefined
}
