/**
 * Writes the report of an experiment: its question, method, pictures, tables, findings and machine.
 *
 * in   a report        out  NAME.md, NAME.json and a NAME-*.svg for each picture, in a directory
 * Invariant: nothing is written before the last measurement has ended and all pictures are drawn.
 */
import { cpus, totalmem } from 'node:os'
import { join } from 'node:path'
import type { TopLevelSpec } from 'vega-lite' with { 'resolution-mode': 'import' }
import { svgOf } from '../io/picture'
import { writeOut } from '../io/writeOut'

interface Table {
  readonly title: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly (string | number | null)[])[]
}

export interface Picture {
  /** Last part of the picture's file name: NAME-<this>.svg. */
  readonly name: string
  readonly caption: string
  readonly spec: TopLevelSpec
}

export interface ExperimentReport {
  readonly name: string
  readonly title: string
  /** The question that the experiment answers, and its source. */
  readonly question: string
  /** Arms, seeds and budgets of the measurement, as lines. */
  readonly method: readonly string[]
  /** Conclusions from the figures, and their limits, as lines. */
  readonly findings: readonly string[]
  readonly tables: readonly Table[]
  readonly pictures: readonly Picture[]
  /** All measurements, in a form for programs. */
  readonly data: unknown
  /** Seconds of all training runs, including runs that were reused. Default: the duration of the command. */
  readonly runSeconds?: number
}

/**
 * Writes the report and returns the path of the Markdown file. @throws TroupeError cli.no_pictures, cli.cannot_write
 */
export async function writeReport(report: ExperimentReport, directory: string, callSeconds: number): Promise<string> {
  const pictures = await Promise.all(
    report.pictures.map(async picture => ({
      ...picture,
      file: `${report.name}-${picture.name}.svg`,
      svg: await svgOf(picture.spec),
    })),
  )
  for (const { file, svg } of pictures) writeOut(join(directory, file), [svg])
  const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? process.arch}, ${Math.round(totalmem() / 2 ** 30)} GiB, no GPU used`
  const { name, title, question, method, findings, data, runSeconds } = report
  const seconds = runSeconds ?? callSeconds
  writeOut(join(directory, `${name}.json`), [`${JSON.stringify({ name, machine, seconds, data }, null, 1)}\n`])
  const list = (lines: readonly string[]) => lines.map(line => `- ${line}`).join('\n')
  const text = [
    `# ${title}`,
    question,
    `\`npx troupe experiment ${name}\`, ${Math.round(seconds)} s${runSeconds === undefined ? '' : ' of training'} on ${machine}. All figures: [${name}.json](${name}.json).`,
    `## How\n\n${list(method)}`,
    '## Results',
    ...pictures.map(({ caption, file }) => `![${caption}](${file})\n\n${caption}`),
    ...report.tables.map(markdownOf),
    list(findings),
  ]
  const file = join(directory, `${name}.md`)
  writeOut(file, [`${text.join('\n\n')}\n`])
  return file
}

function markdownOf({ title, columns, rows }: Table): string {
  const escaped = (cell: string | number | null) =>
    String(cell ?? '—')
      .replace(/\|/g, '\\|')
      .replace(/\s*\n\s*/g, ' ')
  const line = (cells: readonly (string | number | null)[]) => `| ${cells.map(escaped).join(' | ')} |`
  return [`${title}\n`, line(columns), line(columns.map(() => '---')), ...rows.map(line)].join('\n')
}

/** Mean and standard error of the mean; the error is NaN for a single value. */
export function meanAndError(values: readonly number[]): { readonly mean: number; readonly error: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  return { mean, error: Math.sqrt(squares / (values.length - 1) / values.length) }
}

/**
 * Formats values as `0.913 ± 0.012`: without the error for a single value, with `(2 of 3)` when some runs have no
 * value, `–` when none has.
 */
export function shown(values: readonly (number | null)[], digits = 3): string {
  const known = values.filter(value => value !== null).filter(value => !Number.isNaN(value))
  if (known.length === 0) return '–'
  const { mean, error } = meanAndError(known)
  const some = known.length < values.length ? ` (${known.length} of ${values.length})` : ''
  return `${mean.toFixed(digits)}${Number.isFinite(error) ? ` ± ${error.toFixed(digits)}` : ''}${some}`
}
