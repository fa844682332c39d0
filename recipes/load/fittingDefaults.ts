/**
 * Defaults of a user's recipe that depend on the size of its model (YAML and Python without `extends`), or on the
 * number of its problems (with `extends`). Most of the schema's own defaults are those of the rStar2-Agent paper, for a
 * model of 14e9 parameters.
 *
 * in   the recipe's own data, with its paths resolved        out  a layer of config that lies below the recipe's own
 * Invariant: the only files read are the model's config.json and the file of problems (`data.file`). If config.json
 * cannot be read, the defaults are those of a model with 1e9 parameters; if the problems cannot, `evaluation.problems`
 * gets no default.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { positionsOf } from '../../config'
import { parametersOf, shapeOf } from '../../config/estimate/modelShape'
import type { Layer, PlainObject } from '../../runtime/settings/resolveConfig'

/** Numbers of parameters below which a model counts as tiny, and as small. */
const [tiny, small] = [1e7, 1e9]

const section = (data: PlainObject, name: string): PlainObject => (data[name] ?? {}) as PlainObject

/** Returns sizes of contexts, groups and steps, and the learning rate, for a recipe without `extends`. */
export function fittingModel(data: PlainObject): Layer {
  const architecture = architectureOf(section(data, 'model'))
  const parameters = typeof architecture.hidden_size === 'number' ? parametersOf(shapeOf(architecture)) : small
  const isSmall = parameters < small
  const contextTokens = Math.min(isSmall ? 2048 : 8192, positionsOf(architecture) ?? 8192)
  const stated = section(data, 'rollout').groupSize
  const groupSize = typeof stated === 'number' && stated >= 2 ? stated : 16
  const keep = Math.ceil(groupSize / 2)
  const floor = Math.min(2, Math.floor(keep / 2))
  return {
    origin: 'default for this model',
    data: {
      limits: { contextTokens, responseTokens: Math.floor((contextTokens * 3) / 4) },
      rollout: { groupSize, groupsPerStep: isSmall ? 8 : 32 },
      selection: { keep, minPositive: floor, minNegative: floor },
      train: {
        learningRate: parameters < tiny ? 1e-3 : isSmall ? 1e-5 : 1e-6,
        microBatchTokens: isSmall ? 4096 : 16_384,
      },
    },
  }
}

/**
 * Sets `evaluation.problems` to a fifth of the rows of `data.file`, rounded down, for a recipe that extends another and
 * names its own `data.file`. Undefined if the recipe sets `evaluation.problems` or `data.evaluationFile`, if a fifth is
 * 0, or if the number that it inherits is not above a fifth.
 */
export function fittingProblems(own: PlainObject, below: readonly Layer[]): Layer | undefined {
  const { file, evaluationFile } = section(own, 'data')
  if (typeof file !== 'string' || evaluationFile !== undefined || section(own, 'evaluation').problems !== undefined)
    return undefined
  const wanted = below.map(({ data }) => section(data, 'evaluation').problems).findLast(n => typeof n === 'number')
  const held = Math.floor(rowsIn(file) / 5)
  if (typeof wanted !== 'number' || held === 0 || wanted <= held) return undefined
  return { origin: 'a fifth of data.file', data: { evaluation: { problems: held } } }
}

function architectureOf({ config, architecture, path }: PlainObject): PlainObject {
  if (typeof config === 'object' && config !== null) return config as PlainObject
  if (typeof architecture === 'object' && architecture !== null) return architecture as PlainObject
  try {
    return JSON.parse(readFileSync(join(String(path), 'config.json'), 'utf8')) as PlainObject
  } catch {
    return {} // the check of the recipe reports a config.json that cannot be read
  }
}

function rowsIn(file: string): number {
  try {
    return readFileSync(file, 'utf8')
      .split('\n')
      .filter(line => line.trim() !== '').length
  } catch {
    return 0
  }
}
