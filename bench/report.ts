/**
 * What a benchmark reports: figures, and the budgets they were held against, on a machine that is named.
 *
 * in   metrics and budgets      out  lines for a person or one JSON object, and the exit code
 */
import { cpus, totalmem } from 'node:os'

export interface Budget {
  readonly name: string
  readonly value: number
  readonly bound: string
  readonly ok: boolean
}

export interface BenchReport {
  readonly bench: string
  readonly machine: string
  /** Units stand in the names. */
  readonly metrics: Readonly<Record<string, number>>
  readonly budgets: readonly Budget[]
}

/** Processor, cores, memory, Node and system, in one line. */
export function describeMachine(): string {
  const processors = cpus()
  const gib = Math.round(totalmem() / 2 ** 30)
  const model = processors[0]?.model.trim() ?? process.arch
  return `${processors.length} × ${model}, ${gib} GiB, Node ${process.versions.node}, ${process.platform}`
}

export function atLeast(name: string, value: number, bound: number): Budget {
  return { name, value: rounded(value), bound: `>= ${bound}`, ok: value >= bound }
}

export function atMost(name: string, value: number, bound: number): Budget {
  return { name, value: rounded(value), bound: `<= ${bound}`, ok: value <= bound }
}

/** Prints to stdout; returns 1 where a budget falls short, else 0. */
export function printReport(report: BenchReport, json: boolean): number {
  process.stdout.write(json ? `${JSON.stringify(report)}\n` : textOf(report))
  return report.budgets.every(budget => budget.ok) ? 0 : 1
}

/** The middle of the values, or the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** Four significant digits are more than any run repeats. */
export function rounded(value: number): number {
  return Number.isFinite(value) ? Number(value.toPrecision(4)) : value
}

function textOf({ bench, machine, metrics, budgets }: BenchReport): string {
  const rows = Object.entries(metrics).map(([name, value]) => [name, String(rounded(value))] as const)
  const judged = budgets.map(
    ({ name, value, bound, ok }) => [name, `${value}   (${bound}: ${ok ? 'ok' : 'falls short'})`] as const,
  )
  const width = Math.max(0, ...[...rows, ...judged].map(([name]) => name.length))
  const line = ([name, text]: readonly [string, string]): string => `  ${name.padEnd(width)}  ${text}\n`
  return `${bench} on ${machine}\n${rows.map(line).join('')}budgets\n${judged.map(line).join('')}`
}
