/**
 * The schema of a recipe's data: the sections are in sections/, the checks between sections are here.
 *
 * Units are part of the names (`contextTokens`, `deadlineMs`); a number without a unit is a count or a plain number.
 * Most defaults for sampling, selection and training are the paper's (arXiv 2508.20722 §4.3, §5.1).
 */
import { z } from 'zod'
import { namedTwice, urlFault } from './engineAddress'
import { contextFaults, positionsOf } from './positions'
import { agentSection } from './sections/agent'
import { alarmSection } from './sections/alarms'
import { coldStartSection } from './sections/coldStart'
import { engineFaults, engineSection, isLaunched, isServer, schedulerSection } from './sections/engine'
import { environmentsSection } from './sections/environments'
import { evaluationSection } from './sections/evaluation'
import { hardwareSection } from './sections/hardware'
import { logSection } from './sections/log'
import { modelSection } from './sections/model'
import { count } from './sections/numbers'
import { rewardFaults, rewardSection } from './sections/reward'
import { limitsSection, rolloutSection } from './sections/rollout'
import { keptOfGroup, selectionSection } from './sections/selection'
import { stageFaults, stageSection } from './sections/stages'
import { timeoutsSection } from './sections/timeouts'
import { toolsSection } from './sections/tools'
import { trackersSection } from './sections/trackers'
import { trainSection } from './sections/train'

const fields = z.strictObject({
  name: z.string(),
  seed: count.default(1),
  model: modelSection,
  engine: engineSection.prefault({}),
  scheduler: schedulerSection.prefault({}),
  data: z.record(z.string(), z.unknown()).default({}),
  tools: toolsSection.prefault({}),
  agent: agentSection.optional(),
  limits: limitsSection.prefault({}),
  rollout: rolloutSection.prefault({}),
  selection: selectionSection.prefault({}),
  reward: rewardSection.prefault({}),
  coldStart: coldStartSection.optional(),
  train: trainSection.prefault({}),
  evaluation: evaluationSection.prefault({}),
  stages: z.array(stageSection).default([]),
  alarms: z.array(alarmSection).default([]),
  hardware: hardwareSection.optional(),
  timeouts: timeoutsSection.optional(),
  log: logSection.prefault({}),
  trackers: trackersSection,
  environments: environmentsSection,
})

type Fields = z.output<typeof fields>

/** Checks what the schema of a single field cannot: conditions between fields, and values that are not supported. */
function checkSections(recipe: Fields, ctx: z.core.$RefinementCtx<Fields>): void {
  const refuse = (path: (string | number)[], message: string) => ctx.addIssue({ code: 'custom', path, message })
  const { rollout, selection, limits, engine, model } = recipe
  const { topP, topK, minP, temperature } = rollout.sampling
  if (topP < 1)
    refuse(['rollout', 'sampling', 'topP'], 'must be 1: the loss needs the logprobs of the whole distribution')
  if (topK > 0)
    refuse(['rollout', 'sampling', 'topK'], 'must be 0: the loss needs the logprobs of the whole distribution')
  if (minP > 0)
    refuse(['rollout', 'sampling', 'minP'], 'must be 0: the loss needs the logprobs of the whole distribution')
  if (temperature === 0)
    refuse(
      ['rollout', 'sampling', 'temperature'],
      'must be above 0: greedy sampling makes all rollouts of a group equal',
    )
  const divides = selection.variant !== 'all'
  if (divides && selection.keep > rollout.groupSize) {
    refuse(
      ['selection', 'keep'],
      `keeps ${selection.keep} of a group of ${rollout.groupSize}; lower it or raise rollout.groupSize`,
    )
  }
  if (divides && selection.minPositive + selection.minNegative > selection.keep) {
    refuse(
      ['selection', 'minPositive'],
      `minPositive and minNegative add up to more than selection.keep (${selection.keep})`,
    )
  }
  if (limits.promptTokens !== undefined && limits.promptTokens >= limits.contextTokens) {
    refuse(
      ['limits', 'promptTokens'],
      `a prompt of ${limits.promptTokens} tokens leaves no room in a context of ${limits.contextTokens}; lower it or raise limits.contextTokens`,
    )
  }
  const positions = model.from === 'random' ? positionsOf(model.config) : undefined
  for (const [path, why] of contextFaults(recipe, positions, 'model.config.max_position_embeddings'))
    refuse([...path], why)
  for (const [field, why] of rewardFaults(recipe.reward)) refuse(['reward', field], why)
  for (const [path, why] of stageFaults(recipe.stages, limits, recipe.train.overlong?.bufferTokens))
    refuse(['stages', ...path], why)
  const isLocal = engine.kind === 'local'
  for (const [field, why] of engineFaults(engine)) refuse(['engine', field], why)
  if (!isLocal && engine.entropies)
    refuse(['engine', 'entropies'], `${engine.kind} engines do not report entropies; only local engines do`)
  if (isLocal && engine.urls.length > 0)
    refuse(['engine', 'urls'], 'local engines have no URLs; set engine.kind, or leave engine.urls empty')
  if (isServer(engine) && engine.urls.length === 0 && !isLaunched(engine))
    refuse(['engine', 'urls'], `contains no URL; expected at least one ${engine.kind} server`)
  const faults = engine.urls.flatMap(url => urlFault(url) ?? [])
  for (const fault of faults.slice(0, 1)) refuse(['engine', 'urls'], fault)
  const twice = faults.length > 0 ? undefined : namedTwice(engine.kind, engine.urls)
  if (twice !== undefined) refuse(['engine', 'urls'], `${twice} are the same server; name each server once`)
  if (engine.pause === 'in_place' && !engine.keepKv)
    refuse(
      ['engine', 'pause'],
      "'in_place' keeps the KV of older weights: set engine.keepKv, or choose another engine.pause",
    )
  if (recipe.tools.python !== undefined && recipe.tools.packages !== undefined)
    refuse(
      ['tools', 'packages'],
      'makes an interpreter of its own, and tools.python names another; leave out one of the two',
    )
  const { train } = recipe
  const sequences = rollout.groupsPerStep * keptOfGroup(selection, rollout.groupSize)
  if (train.ranks > sequences) {
    refuse(
      ['train', 'ranks'],
      `${train.ranks} ranks are more than the ${sequences} sequences of a step (rollout.groupsPerStep × ${divides ? 'selection.keep' : 'rollout.groupSize'}): some ranks would have no work; lower it`,
    )
  }
  const units = train.miniBatchUnit === 'groups' ? rollout.groupsPerStep : sequences
  if (train.miniBatches > units) {
    refuse(
      ['train', 'miniBatches'],
      `${train.miniBatches} mini-batches are more than the ${units} ${train.miniBatchUnit} of a step; lower it`,
    )
  }
  if (train.overlong !== undefined && train.overlong.bufferTokens > limits.responseTokens) {
    refuse(
      ['train', 'overlong', 'bufferTokens'],
      `a buffer of ${train.overlong.bufferTokens} tokens exceeds limits.responseTokens (${limits.responseTokens})`,
    )
  }
  const evaluated = recipe.evaluation.limits?.contextTokens
  for (const [path, tokens] of [
    [['limits', 'contextTokens'], limits.contextTokens],
    [['evaluation', 'limits', 'contextTokens'], evaluated ?? 0],
  ] as const) {
    if (isLocal && tokens > engine.kvTokens)
      refuse([...path], `a context of ${tokens} tokens does not fit engine.kvTokens (${engine.kvTokens})`)
  }
}

/** Schema of a whole recipe: the sections, and the checks between them. */
export const recipeSchema = fields.superRefine(checkSections)

/** Returns the recipe schema with the given schema for its `data` section. */
export function recipeSchemaWith(data: z.ZodType<Readonly<Record<string, unknown>>> | undefined) {
  if (data === undefined) return recipeSchema
  return fields
    .extend({ data: data.prefault({}) })
    .superRefine(checkSections as never) as unknown as typeof recipeSchema
}

/** A recipe's data with every default filled in. */
export type RecipeConfig = z.output<typeof recipeSchema>
export type RecipeInput = z.input<typeof recipeSchema>

/** Returns the longest context that an engine must hold, in tokens. */
export const longestContext = ({ limits, evaluation }: RecipeConfig): number =>
  Math.max(limits.contextTokens, evaluation.limits?.contextTokens ?? 0)
