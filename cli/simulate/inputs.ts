/**
 * The files that `troupe simulate` reads: an engine model (JSON) and a trace (JSON lines), DESIGN §9.
 *
 * in   a path        out  what stands there, checked
 * Invariant: a file that is not what it should be is refused whole, with the line, the field, and what was wrong there.
 */
import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { type EngineModel, familyNames, finalTokens, stepMs, type TracedTrajectory } from '../../kernels'
import { parseConfig } from '../../runtime/config'
import { asError, TroupeError } from '../../runtime/errors'
import { withoutBom } from '../../runtime/withoutBom'
import { azureHeader, parseAzureTrace, type ReadTrace } from './azureTrace'
import { invalidInput } from './invalidInput'

const tokens = z.number().int().positive()
const coefficient = z.number().nonnegative()

const modelSchema = z.strictObject({
  name: z.string().min(1),
  family: z.enum(familyNames),
  kvTokens: tokens,
  blockTokens: tokens,
  maxSequences: tokens,
  maxBatchTokens: tokens,
  prefixSharing: z.boolean(),
  stepMs: z.strictObject({
    overhead: coefficient,
    denseFloor: coefficient,
    densePerToken: coefficient,
    decodeBase: coefficient,
    decodePerSequence: coefficient,
    decodePerKvToken: coefficient,
    prefillBase: coefficient,
    prefillPerToken: coefficient,
    prefillPerPair: coefficient,
    mixedPerSequence: coefficient.optional(),
  }),
})

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

/** A step of one sequence that lasts longer than this was not measured in ms. */
const longestStepMs = 60_000

/** @throws TroupeError config.invalid */
export function readEngineModel(path: string): EngineModel {
  const model = check(modelSchema, jsonOf(textOf(path), path), path)
  if (model.blockTokens > model.kvTokens) {
    throw invalidInput(`${path}: blockTokens: ${model.blockTokens} is more than kvTokens, ${model.kvTokens}`)
  }
  const ms = stepMs(model, 1, 1, [])
  if (ms > 0 && ms <= longestStepMs) return model
  throw invalidInput(
    `${path}: stepMs: a step that decodes one sequence would last ${ms} ms; are the coefficients in ms?`,
  )
}

/**
 * Lines of JSON, or a CSV of Azure's.
 * @throws TroupeError config.invalid
 */
export function readTrace(path: string, model: EngineModel): ReadTrace {
  const text = textOf(path)
  const read = text.startsWith(azureHeader) ? parseAzureTrace(text, path) : parseLines(text, path)
  const room = Math.floor(model.kvTokens / model.blockTokens) * model.blockTokens
  for (const [at, one] of read.trace.entries()) {
    // The token that is sampled last is never put into the cache.
    const needs = finalTokens(one) - 1
    if (needs <= room) continue
    throw invalidInput(
      `${path} line ${read.lines[at]}: turns: trajectory '${one.trajectoryId}' needs ${needs} tokens of KV at its end, and an engine '${model.name}' has ${room} in whole blocks`,
    )
  }
  if (read.trace.length === 0) throw invalidInput(`${path}: it holds no trajectory`)
  return read
}

function parseLines(text: string, path: string): ReadTrace {
  const trace: TracedTrajectory[] = []
  const lineOf = new Map<string, number>()
  for (const [index, content] of text.split('\n').entries()) {
    if (content.trim() === '') continue
    const where = `${path} line ${index + 1}`
    const line = check(lineSchema, jsonOf(content, where), where)
    const before = lineOf.get(line.trajectoryId)
    if (before !== undefined) {
      throw invalidInput(`${where}: trajectoryId: '${line.trajectoryId}' stands in line ${before} already`)
    }
    lineOf.set(line.trajectoryId, index + 1)
    trace.push(line)
  }
  return { trace, lines: [...lineOf.values()], empty: 0 }
}

function textOf(path: string): string {
  try {
    return withoutBom(readFileSync(path, 'utf8'))
  } catch (thrown) {
    throw invalidInput(`${path} cannot be read: ${asError(thrown).message}`, thrown)
  }
}

function jsonOf(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (thrown) {
    throw invalidInput(`${where}: this is no JSON: ${asError(thrown).message}`, thrown)
  }
}

function check<S extends z.ZodType>(schema: S, value: unknown, where: string): z.output<S> {
  try {
    return parseConfig(schema, value, where)
  } catch (thrown) {
    throw thrown instanceof TroupeError ? invalidInput(thrown.message, thrown) : thrown
  }
}
