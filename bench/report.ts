/**
 * Report of a benchmark: its figures and the budgets that they are compared with, on a named machine.
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
  /** Measured values by name; the name contains the unit if the value has one. */
  readonly metrics: Readonly<Record<string, number>>
  readonly budgets: readonly Budget[]
}

/** Describes processor, cores, memory, Node and operating system in one line. */
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

/** Prints the report to stdout; returns 1 when a budget is not met, else 0. */
export function printReport(report: BenchReport, json: boolean): number {
  process.stdout.write(json ? `${JSON.stringify(report)}\n` : textOf(report))
  return report.budgets.every(budget => budget.ok) ? 0 : 1
}

/** Median: the middle value, or the mean of the two middle values. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** Rounds to four significant digits; further digits differ between runs. */
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
