/**
 * An engine model file (DESIGN §9): what `troupe simulate` and simulated engines read, and `simulate --calibrate` writes.
 *
 * in   a path        out  the model, checked
 * Invariant: a file that is not what it should be is refused whole, with the field and what was wrong there.
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

/** A step of one sequence that lasts longer than this was not measured in ms. */
const longestStepMs = 60_000
/** And sums of times beyond this no longer tell steps of a fraction of a ms apart. */
const longestPrefillMs = 2 ** 46

/** @throws TroupeError config.invalid */
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
