/**
 * Tables and long lines for a terminal of any width: columns are dropped whole, lines break between words.
 *
 * in   columns, rows, the terminal's width (undefined: no terminal)        out  lines
 * Invariant: no line breaks within a word; if the output is no terminal, nothing is dropped or broken.
 */
import { fitColumns } from './fitColumns'

export interface TableColumn {
  readonly title: string
  /** Minimum width; cells that are longer widen it. */
  readonly width?: number
  /** True aligns the cells to the right, as for numbers. */
  readonly atEnd?: boolean
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours of a terminal begin with it
const colours = /\x1b\[[0-9;]*m/g
const widthOf = (text: string) => text.replace(colours, '').length

/** `order`: indexes of the columns, the most important first. */
export function tableLines(
  columns: readonly TableColumn[],
  order: readonly number[],
  rows: readonly (readonly string[])[],
  room: number | undefined,
): readonly string[] {
  const widths = columns.map(({ title, width = 0 }, at) =>
    rows.reduce((most, row) => Math.max(most, widthOf(row[at]!)), Math.max(width, title.length)),
  )
  const fits = fitColumns(widths, order, room)
  const cell = (text: string, at: number) => {
    const blanks = ' '.repeat(widths[at]! - widthOf(text))
    return columns[at]!.atEnd === true ? blanks + text : text + blanks
  }
  const line = (cells: readonly string[]) =>
    cells
      .map(cell)
      .filter((_, at) => fits[at])
      .join('  ')
      .trimEnd()
  return [columns.map(({ title }) => title), ...rows].map(line)
}

/**
 * Breaks a line between words; further lines begin with `indent` blanks. A word that is longer than a line stays whole.
 */
export function wrapped(text: string, room: number | undefined, indent: number): readonly string[] {
  if (room === undefined || widthOf(text) <= room) return [text]
  const lines: string[] = []
  let line = ''
  for (const part of text.match(/\s*\S+/g) ?? []) {
    if (line.trim() !== '' && widthOf(line) + widthOf(part) > room) {
      lines.push(line)
      line = ' '.repeat(indent) + part.trimStart()
    } else line += part
  }
  return [...lines, line]
}
