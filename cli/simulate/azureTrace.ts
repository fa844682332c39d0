/**
 * Reads traces that Azure publishes of its LLM services: `TIMESTAMP,ContextTokens,GeneratedTokens`, one request per
 * line.
 *
 * in   the text of such a CSV    out  one single-turn trajectory per request, in the file's order, timed from the first
 * request on
 * Invariant: a file with a faulty line is refused, with the line's number. A request that generated nothing is left out
 * and counted, since a trace has no way to describe a turn without tokens.
 */
import type { TracedTrajectory } from '../../kernels'
import { invalidInput } from '../../runtime/settings/inputFile'

export const azureHeader = 'TIMESTAMP,ContextTokens,GeneratedTokens'

/** Content of a parsed trace file. */
export interface ReadTrace {
  readonly trace: readonly TracedTrajectory[]
  /** Line number in the file, for each trajectory. */
  readonly lines: readonly number[]
  /** Number of requests without a generated token, which are left out. */
  readonly empty: number
}

/** Form of a timestamp: `2023-11-16 18:17:03.9799600`, UTC, in units of 100 ns. */
const stamp = /^(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,7}))?$/

/**
 * Parses a trace file.
 * @throws TroupeError config.invalid, with the line
 */
export function parseAzureTrace(text: string, path: string): ReadTrace {
  const lines = text.split(/\r?\n/)
  const trace: TracedTrajectory[] = []
  const numbers: number[] = []
  let empty = 0
  let firstMs: number | undefined
  for (const [index, line] of lines.entries()) {
    if (index === 0 || line === '') continue
    const where = `${path} line ${index + 1}`
    const cells = line.split(',')
    if (cells.length !== 3) throw invalidInput(`${where}: ${cells.length} fields; expected the 3 of ${azureHeader}`)
    const ms = timeOf(cells[0]!, where)
    const [contextTokens, newTokens] = [
      count(cells[1]!, 'ContextTokens', where),
      count(cells[2]!, 'GeneratedTokens', where),
    ]
    firstMs ??= ms
    if (ms < firstMs) throw invalidInput(`${where}: TIMESTAMP ${cells[0]} is before the first request's`)
    if (newTokens === 0) {
      empty++
      continue
    }
    const trajectoryId = `r${index}`
    numbers.push(index + 1)
    const turns = [{ newTokens, toolMs: 0, toolTokens: 0 }]
    trace.push({
      trajectoryId,
      groupId: trajectoryId,
      arrivalMs: ms - firstMs,
      promptTokens: Math.max(1, contextTokens),
      turns,
    })
  }
  return { trace, lines: numbers, empty }
}

function timeOf(text: string, where: string): number {
  const [, year, month, day, hour, minute, second, part = ''] = stamp.exec(text) ?? []
  if (year === undefined)
    throw invalidInput(`${where}: TIMESTAMP '${text}' is not a time such as 2023-11-16 18:17:03.9799600`)
  const whole = Date.UTC(Number(year), Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second))
  // JavaScript rolls an impossible date or time over into a later one, which then differs from the text.
  const read = new Date(whole).toISOString().slice(0, 19).replace('T', ' ')
  if (read !== text.slice(0, 19)) throw invalidInput(`${where}: the time ${text.slice(0, 19)} does not exist`)
  return whole + Number(part.padEnd(7, '0')) / 10_000
}

function count(text: string, field: string, where: string): number {
  if (!/^\d{1,9}$/.test(text)) throw invalidInput(`${where}: ${field} '${text}' is not a number of tokens`)
  return Number(text)
}
