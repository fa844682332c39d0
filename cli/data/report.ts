/** Formats the report of `troupe data` as text: the number of a data set's rows by outcome. */
import { escapeForTerminal } from '../io/terminal'

export interface DataReport {
  readonly set: string
  readonly title: string
  readonly kind: 'training' | 'evaluation' | 'conversations'
  readonly from: readonly string[]
  readonly out: string
  readonly rows: number
  readonly kept: number
  /** Number of rows that do not have the set's form, by reason. */
  readonly broken: Readonly<Record<string, number>>
  readonly brokenAt: readonly string[]
  /** Number of rows that were filtered out, by reason. */
  readonly dropped: Readonly<Record<string, number>>
  readonly integer: boolean
  readonly agreement: { readonly least: number; readonly of: number } | null
  readonly decontaminated: {
    readonly words: number
    readonly problems: number
    readonly files: readonly string[]
  } | null
  /** Seed of the shuffle; null when the rows keep the published order. */
  readonly seed: number | null
  readonly sha256: string
}

export function printReport(report: DataReport): string {
  const width = String(report.rows).length
  const line = (n: number, text: string) => `  ${String(n).padStart(width)}  ${escapeForTerminal(text)}`
  const reasons = (counts: Readonly<Record<string, number>>, kind: string) =>
    Object.entries(counts)
      .sort(([, a], [, b]) => b - a)
      .map(([reason, n]) => line(n, `${kind}: ${reason}`))
  const at =
    report.brokenAt.length === 0 ? [] : [`  the first broken rows: ${escapeForTerminal(report.brokenAt.join(', '))}`]
  const { decontaminated, agreement, seed } = report
  const filters = [
    ...(report.integer ? ['integer answers only'] : []),
    ...(agreement === null ? [] : [`${agreement.least} of ${agreement.of} sampled answers match`]),
    ...(decontaminated === null
      ? report.kind === 'training'
        ? ['not decontaminated (--against FILE)']
        : []
      : [`no ${decontaminated.words} words in a row with ${decontaminated.problems} evaluation problems`]),
    seed === null ? 'in the published order' : `shuffled by seed ${seed}`,
  ]
  return [
    `${report.title}: ${report.kept} of ${report.rows} rows kept (${filters.join('; ')})`,
    ...reasons(report.broken, 'broken'),
    ...at,
    ...reasons(report.dropped, 'dropped'),
    `${escapeForTerminal(report.out)}  sha256 ${report.sha256.slice(0, 16)}…`,
    '',
  ].join('\n')
}
