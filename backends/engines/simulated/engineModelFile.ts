/**
 * The engine model file (docs/scheduler.md): `troupe simulate` and simulated engines read it, `simulate --calibrate`
 * writes it.
 *
 * in   a path        out  the checked model
 * Invariant: a file with a fault is refused as a whole, with the field and the fault.
 */
import { z } from 'zod'
import { type EngineModel, familyNames, stepMs } from '../../../kernels'
import { checkInput, invalidInput, parseJson, readText } from '../../../runtime/settings/inputFile'

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

/**
 * Upper bound on a step that decodes one sequence, in milliseconds; a longer one suggests that the file is not in
 * milliseconds.
 */
const longestStepMs = 60_000
/**
 * Upper bound on the largest possible step (all sequences and the longest prefill), in milliseconds; sums of longer
 * times lose fractions of a millisecond in a double.
 */
const longestPrefillMs = 2 ** 46

/** Reads and checks the file. @throws TroupeError config.invalid if the file has a fault */
export function readEngineModel(path: string): EngineModel {
  const model = checkInput(modelSchema, parseJson(readText(path), path), path)
  if (model.blockTokens > model.kvTokens) {
    throw invalidInput(`${path}: blockTokens: ${model.blockTokens} is more than kvTokens, ${model.kvTokens}`)
  }
  const ms = stepMs(model, 1, 1, [])
  if (!(ms > 0 && ms <= longestStepMs)) {
    throw invalidInput(
      `${path}: stepMs: a step that decodes one sequence would last ${ms} ms; are the coefficients in ms?`,
    )
  }
  const { maxSequences, maxBatchTokens, kvTokens } = model
  const most = stepMs(model, maxSequences, kvTokens, [{ cachedTokens: kvTokens, tokens: maxBatchTokens }])
  if (most <= longestPrefillMs) return model
  throw invalidInput(
    `${path}: stepMs: a step that computes ${maxBatchTokens} tokens of a prompt behind ${kvTokens} would last ${most} ms; are the coefficients in ms?`,
  )
}
