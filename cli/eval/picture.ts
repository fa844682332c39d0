/**
 * Draws an evaluation's results beside the paper's: accuracy, and below it the length of responses.
 *
 * in   rows {benchmark, model, accuracy, tokens}        out  an SVG, readable on light and dark pages
 * Invariant: names are the only text from outside, and they are escaped. The same rows give the same SVG.
 */
export interface PictureRow {
  readonly benchmark: string
  readonly model: string
  readonly ours: boolean
  /** Accuracy in percent; null when no answer was judged. */
  readonly accuracy: number | null
  /** Standard error of the accuracy, in percent. */
  readonly error?: number
  readonly tokens?: number
}

const width = 760
const labels = 250
const bar = 14
const gap = 5
const barWidth = width - labels - 110

export function pictureOf(rows: readonly PictureRow[]): string {
  const parts: string[] = []
  let y = 0
  const text = (x: number, at: number, content: string, style = '') =>
    `<text x="${x}" y="${at}"${style}>${escaped(content)}</text>`
  const panel = (
    title: string,
    shown: readonly PictureRow[],
    figure: (row: PictureRow) => number | null,
    most: number,
    unit: string,
  ) => {
    if (shown.length === 0) return
    y += 26
    parts.push(text(0, y, title, ' font-weight="600"'))
    y += 10
    let last = ''
    for (const row of shown) {
      if (row.benchmark !== last) y += last === '' ? 4 : 10
      last = row.benchmark
      const value = figure(row)
      const name = `${row.benchmark} · ${row.model}`
      parts.push(text(0, y + bar - 3, name.slice(0, 40)))
      if (value === null) {
        parts.push(text(labels, y + bar - 3, '–'))
        y += bar + gap
        continue
      }
      const length = Math.max(1, (barWidth * Math.min(value, most)) / most)
      parts.push(
        `<rect x="${labels}" y="${y}" width="${length.toFixed(1)}" height="${bar}" fill="${row.ours ? '#d9662b' : '#7f8c9a'}"/>`,
      )
      if (row.error !== undefined && unit === '%') {
        const [from, to] = [value - row.error, value + row.error].map(
          v => labels + (barWidth * Math.min(Math.max(v, 0), most)) / most,
        )
        const middle = y + bar / 2
        parts.push(
          `<path d="M${from!.toFixed(1)} ${middle}H${to!.toFixed(1)}" stroke="currentColor" stroke-width="1.5"/>`,
        )
      }
      const said = unit === '%' ? value.toFixed(1) : Math.round(value).toLocaleString('en-US')
      parts.push(text(labels + barWidth + 8, y + bar - 3, `${said}${unit === '%' ? ' %' : ''}`))
      y += bar + gap
    }
  }
  panel('Accuracy', rows, row => row.accuracy, 100, '%')
  const long = rows.filter(row => row.tokens !== undefined)
  panel('Response length, tokens', long, row => row.tokens!, Math.max(1, ...long.map(row => row.tokens!)), '')
  const height = y + 10
  const style = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor" color="#555"'
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ${style}>\n${parts.join('\n')}\n</svg>\n`
}

const escaped = (text: string) =>
  text.replace(
    /[&<>"'\p{Cc}]/gu,
    c => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' })[c] ?? '\ufffd',
  )
