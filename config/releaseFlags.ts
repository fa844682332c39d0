/**
 * Maps flags of the paper's released scripts to Troupe's recipe fields, for users who come from those scripts.
 *
 * in   plain data or a path that may use such flags        out  fields, and the flag that each of them came from
 * Some flags have `-1` for "off": it becomes the value that disables Troupe's field, except that `down_sample_to_n: -1`
 * leaves `selection.keep` as it is.
 * Invariant: no flag has the name of a field that Troupe itself defines. Data that sets one field twice, by a flag and
 * by its own name or by two flags, to different values, is refused.
 */

import { TroupeError } from '../runtime/errors'
import { nearestName } from '../runtime/settings/nearestName'

type Plain = Readonly<Record<string, unknown>>

interface Flag {
  readonly path: string
  readonly to?: (value: unknown) => unknown
}

/** Converts a flag's number: negative values such as -1, which mean "off" in the release, become `off`. */
const numberOr = (off: unknown) => (value: unknown) => (typeof value === 'number' && value < 0 ? off : value)

/** Flags of RoC; they may stand at the top, under `augmentation`, or under `augmentation.down_sampling_config`. */
const augmentation: Readonly<Record<string, Flag>> = {
  do_down_sampling: { path: 'selection.variant', to: value => (isTrue(value) ? 'release' : 'all') },
  down_sample_to_n: { path: 'selection.keep', to: numberOr(undefined) },
  reject_equal_reward: { path: 'selection.rejectEqual' },
  roc_error_ratio: { path: 'selection.errorRatio' },
  roc_answer_format: { path: 'selection.answerFormat' },
  min_zero_reward_trace_num: { path: 'selection.minNegative', to: numberOr(0) },
  min_non_zero_reward_trace_num: { path: 'selection.minPositive', to: numberOr(0) },
}

const prefixes = ['', 'augmentation.', 'augmentation.down_sampling_config.'] as const

/** Flags of the trainer that the release builds on: those that the release's script sets and Troupe has a field for. */
const trainer: Readonly<Record<string, Flag>> = {
  'data.train_batch_size': { path: 'rollout.groupsPerStep' },
  'data.max_prompt_length': { path: 'limits.promptTokens' },
  'data.max_response_length': { path: 'limits.responseTokens' },
  'actor_rollout_ref.model.path': { path: 'model.path' },
  'actor_rollout_ref.rollout.n': { path: 'rollout.groupSize' },
  'actor_rollout_ref.rollout.temperature': { path: 'rollout.sampling.temperature' },
  'actor_rollout_ref.rollout.multi_turn.max_assistant_turns': { path: 'limits.turns' },
  'actor_rollout_ref.rollout.multi_turn.max_parallel_calls': { path: 'limits.callsPerTurn' },
  'actor_rollout_ref.rollout.multi_turn.max_tool_response_length': { path: 'limits.toolResponseChars' },
  'actor_rollout_ref.actor.optim.lr': { path: 'train.learningRate' },
  'actor_rollout_ref.actor.optim.lr_warmup_steps': { path: 'train.warmupSteps', to: numberOr(0) },
  'actor_rollout_ref.actor.clip_ratio_low': { path: 'train.clipLow' },
  'actor_rollout_ref.actor.clip_ratio_high': { path: 'train.clipHigh' },
  'trainer.total_training_steps': { path: 'train.steps' },
  'trainer.save_freq': { path: 'train.checkpointEvery' },
  'trainer.test_freq': { path: 'evaluation.every', to: numberOr(0) },
}

const flags: ReadonlyMap<string, Flag> = new Map([
  ...prefixes.flatMap(prefix => Object.entries(augmentation).map(([name, flag]) => [prefix + name, flag] as const)),
  ...Object.entries(trainer),
])

/** First path segments that only the release uses; a path below them that is not one of the flags above is refused. */
const roots = new Set(['augmentation', 'actor_rollout_ref', 'trainer'])

export interface Mapped {
  readonly path: string
  /** Value of the field at `path`; undefined: the flag's value leaves the field as it is without the flag. */
  readonly value: unknown
}

/**
 * Maps one assignment by a flag to a field; undefined if the name is not a flag.
 * @throws TroupeError config.invalid for an unknown name below the release's first path segments
 */
export function mapFlag(name: string, value: unknown, what = ''): Mapped | undefined {
  const flag = flags.get(name)
  if (flag !== undefined) return { path: flag.path, value: flag.to === undefined ? value : flag.to(value) }
  if (roots.has(name.split('.')[0]!)) throw unknownFlag(name, what)
  return undefined
}

/**
 * Maps all flags in `data`. Returns the remaining data, and the mapped values with their paths and flags.
 * @throws TroupeError config.invalid for an unknown name below the release's first path segments, and for a field that
 * is set twice, to different values
 */
export function mapFlags(
  data: Plain,
  what: string,
): {
  readonly data: Plain
  readonly named: readonly (Mapped & { flag: string })[]
} {
  const named: (Mapped & { flag: string })[] = []
  const strip = (inner: Plain, path: string): Plain => {
    const kept: Record<string, unknown> = {}
    for (const [key, value] of Object.entries(inner)) {
      const name = path === '' ? key : `${path}.${key}`
      const isBranch = isPlain(value) && [...flags.keys()].some(flag => flag.startsWith(`${name}.`))
      if (isBranch) {
        const rest = strip(value, name)
        if (Object.keys(rest).length > 0 || !roots.has(name.split('.')[0]!)) kept[key] = rest
        continue
      }
      const mapped = mapFlag(name, value, what)
      if (mapped === undefined) kept[key] = value
      else named.push({ ...mapped, flag: name })
    }
    return kept
  }
  const rest = strip(data, '')
  for (const { path, value, flag } of named) {
    const other = named.find(also => also.path === path && also.value !== value)
    const own = path.split('.').reduce<unknown>((at, key) => (isPlain(at) ? at[key] : undefined), rest)
    if (other !== undefined) throw invalid(what, `${flag} and ${other.flag} both set ${path}, to different values`)
    if (own !== undefined && own !== value)
      throw invalid(what, `${flag} sets ${path}, which the same data sets to another value`)
  }
  return { data: rest, named: named.filter(({ value }) => value !== undefined) }
}

function unknownFlag(name: string, what: string): TroupeError {
  const leaf = name.split('.').at(-1)!
  const byLeaf = [...flags.keys()].filter(flag => flag.includes('.'))
  const leafOf = (flag: string) => flag.split('.').at(-1)!
  const nearest = nearestName(leaf, byLeaf.map(leafOf))
  const meant = byLeaf.find(flag => leafOf(flag) === nearest)
  const guess = meant === undefined ? '' : `; did you mean '${meant}'?`
  return invalid(what, `${name} is not a known flag of the paper's release${guess}`)
}

const isTrue = (value: unknown) => value === true || value === 'True' || value === 'true'

const isPlain = (value: unknown): value is Plain => value !== null && typeof value === 'object' && !Array.isArray(value)

const invalid = (what: string, message: string) =>
  new TroupeError('config.invalid', {
    boundary: 'config',
    retriable: false,
    message: what === '' ? message : `${what}: ${message}`,
    hint: 'docs/recipes.md lists the known flags of the release and the fields that they set',
  })
