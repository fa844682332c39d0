/**
 * Reads the traces for `troupe simulate`: JSON lines (docs/scheduler.md), or a CSV of Azure's LLM services.
 *
 * in   a path        out  the checked trace
 * Invariant: a file with a fault is refused as a whole; the error names the fault, and its line and field if it lies in
 * one.
 */
import { z } from 'zod'
import { type EngineModel, roomFault, type TracedTrajectory } from '../../kernels'
import { checkInput, invalidInput, parseJson, readText } from '../../runtime/settings/inputFile'
import { azureHeader, parseAzureTrace, type ReadTrace } from './azureTrace'

const tokens = z.number().int().positive()
const id = z.string().min(1)
const lineSchema = z.strictObject({
  trajectoryId: id,
  groupId: id,
  arrivalMs: z.number().nonnegative(),
  promptTokens: tokens,
  turns: z
    .array(
      z.strictObject({
        newTokens: tokens,
        toolMs: z.number().nonnegative(),
        toolTokens: z.number().int().nonnegative(),
      }),
    )
    .min(1),
})

/**
 * Reads a trace from JSON lines, or from a CSV of Azure's LLM services.
 * @throws TroupeError config.invalid
 */
export function readTrace(path: string, model: EngineModel): ReadTrace {
  const text = readText(path)
  const read = text.startsWith(azureHeader) ? parseAzureTrace(text, path) : parseLines(text, path)
  for (const [at, one] of read.trace.entries()) {
    const fault = roomFault(one, model)
    if (fault !== null) throw invalidInput(`${path} line ${read.lines[at]}: turns: ${fault}`)
  }
  if (read.trace.length === 0) throw invalidInput(`${path}: the file contains no trajectory`)
  return read
}

function parseLines(text: string, path: string): ReadTrace {
  const trace: TracedTrajectory[] = []
  const lineOf = new Map<string, number>()
  for (const [index, content] of text.split('\n').entries()) {
    if (content.trim() === '') continue
    const where = `${path} line ${index + 1}`
    const line = checkInput(lineSchema, parseJson(content, where), where)
    const before = lineOf.get(line.trajectoryId)
    if (before !== undefined) {
      throw invalidInput(`${where}: trajectoryId: '${line.trajectoryId}' is used in line ${before} already`)
    }
    lineOf.set(line.trajectoryId, index + 1)
    trace.push(line)
  }
  return { trace, lines: [...lineOf.values()], empty: 0 }
}
