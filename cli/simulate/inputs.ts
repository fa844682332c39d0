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
const hint = 'docs/scheduling.md describes both files'

/** @throws TroupeError config.invalid */
export function readEngineModel(path: string): EngineModel {
  const model = check(modelSchema, jsonOf(textOf(path), path), path)
  if (model.blockTokens > model.kvTokens) {
    throw invalid(`${path}: blockTokens: ${model.blockTokens} is more than kvTokens, ${model.kvTokens}`)
  }
  const ms = stepMs(model, 1, 1, [])
  if (ms > 0 && ms <= longestStepMs) return model
  throw invalid(`${path}: stepMs: a step that decodes one sequence would last ${ms} ms; are the coefficients in ms?`)
}

/** @throws TroupeError config.invalid */
export function readTrace(path: string, model: EngineModel): readonly TracedTrajectory[] {
  const trace: TracedTrajectory[] = []
  const lineOf = new Map<string, number>()
  const room = Math.floor(model.kvTokens / model.blockTokens) * model.blockTokens
  textOf(path)
    .split('\n')
    .forEach((text, index) => {
      if (text.trim() === '') return
      const where = `${path} line ${index + 1}`
      const line = check(lineSchema, jsonOf(text, where), where)
      const before = lineOf.get(line.trajectoryId)
      if (before !== undefined) {
        throw invalid(`${where}: trajectoryId: '${line.trajectoryId}' stands in line ${before} already`)
      }
      // The token that is sampled last is never put into the cache.
      const needs = finalTokens(line) - 1
      if (needs > room) {
        throw invalid(
          `${where}: turns: the trajectory needs ${needs} tokens of KV at its end, and an engine '${model.name}' has ${room} in whole blocks`,
        )
      }
      lineOf.set(line.trajectoryId, index + 1)
      trace.push(line)
    })
  if (trace.length === 0) throw invalid(`${path}: it holds no trajectory`)
  return trace
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (thrown) {
    throw invalid(`${path} cannot be read: ${asError(thrown).message}`, thrown)
  }
}

function jsonOf(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (thrown) {
    throw invalid(`${where}: this is no JSON: ${asError(thrown).message}`, thrown)
  }
}

function check<S extends z.ZodType>(schema: S, value: unknown, where: string): z.output<S> {
  try {
    return parseConfig(schema, value, where)
  } catch (thrown) {
    throw thrown instanceof TroupeError ? invalid(thrown.message, thrown) : thrown
  }
}

function invalid(message: string, cause?: unknown): TroupeError {
  return new TroupeError('config.invalid', { boundary: 'config', retriable: false, message, hint, cause })
}
