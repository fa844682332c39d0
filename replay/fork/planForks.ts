/**
 * Plans the forks of a trajectory: the turns they share with it, and the weights and code that each fork continues
 * with.
 *
 * in   a recorded trajectory, what its forks do otherwise        out  the facts that the forks begin with, grouped by
 * the weights that they continue with
 * Invariant: weights, tools and rewards that a fork needs are checked to exist before a run is begun.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { environmentOf } from '../../actors/tools/codeEnvironment'
import { toolSchemas } from '../../actors/tools/runTools'
import { builtInRewards, type RecipeConfig, recipeSchema } from '../../config'
import { engineOverrides } from '../../config/engineAddress'
import type { RunStarted } from '../../messages/facts'
import { policyVersion, type RunId } from '../../messages/ids'
import { systemEffects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { applyOverrides, parseConfig } from '../../runtime/settings/resolveConfig'
import { environmentChanges } from '../../sandbox/environment'
import { nearestWeights, type PublishedWeights, sampledUnder } from '../learning/publishedWeights'
import { type RecipeCode, recipeCode } from '../log/recipeCode'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { resolveId, trajectoriesOf } from '../trajectories/resolveId'
import { readTrajectories, type Trajectory } from '../trajectories/trajectory'
import { type ForkFacts, forkFacts, refuseCaptured, turnsOf } from './forkFacts'

export interface ForkOptions {
  /** First turn that the forks do not share with their parent; `all`: forks at every turn. */
  readonly fromTurn: number | 'all'
  /** Number of forks that begin at each turn. Default 1. */
  readonly times?: number
  /** Seed from which each fork's seed is derived. Default: the parent's seed. */
  readonly seed?: number
  /** Sampling temperature of the forks. Default: the parent's temperature. */
  readonly temperature?: number
  /** File with the text that the model is shown instead of the tool result before the turn; at most 256 KiB. */
  readonly editToolResult?: string
  /**
   * Policy version that the forks continue with; it must be on disk. Default: the version that sampled the last token
   * of the parent's turn at which the fork begins; if that is not on disk, the nearest version that is.
   */
  readonly policy?: number
  /** Directory of the weights that the forks continue with, in place of a policy version. */
  readonly model?: string
  /** Addresses of engines that run the forks (config/engineAddress.ts). Default: the engines of the parent's run. */
  readonly engine?: readonly string[]
  /** Name or file of a recipe whose tools and rewards the forks use. Default: the recipe of the parent's run. */
  readonly recipe?: string
  /** Name of the new run that holds the forks. Default: `fork-`, the parent's run and the time. */
  readonly as?: string
}

/** Forks that continue with the same weights, and the turns that they begin at. */
export interface ForkPart {
  readonly weights: PublishedWeights
  readonly turns: readonly number[]
  readonly forks: readonly ForkFacts[]
}

export interface ForkPlan {
  readonly parent: Trajectory
  readonly parentRun: RunId
  readonly started: RunStarted
  readonly code: RecipeCode
  readonly turns: readonly number[]
  readonly parts: readonly ForkPart[]
  /** Name of the new run that holds the forks. */
  readonly run: string
  /**
   * Differences between the tool environment of the parent's run and that of the forks (such as installed packages),
   * one text each. Empty when there are none, and for logs of versions that did not record the environment.
   */
  readonly environmentChanges: readonly string[]
}

const maxToolResultBytes = 256 * 1024

/**
 * Plans the forks of the trajectory that `asked` names: its id, or a part that only one trajectory's id has.
 * @throws TroupeError replay.no_match, replay.ambiguous for `asked`; replay.captured for a session of the gateway;
 * replay.no_turn, replay.no_tool_result; replay.no_code when the recipe lacks a tool or a reward that the forks need;
 * replay.no_weights when the weights are not on disk; replay.too_large, replay.cannot_read for the file of the edited
 * tool result; config.no_recipe, config.invalid, config.bad_engine
 */
export async function planForks(recorded: RecordedRun, asked: string, options: ForkOptions): Promise<ForkPlan> {
  const id = resolveId(asked, await trajectoriesOf(recorded))
  const [parent] = await readTrajectories(recorded, t => t === id)
  if (parent === undefined || turnsOf(parent) === 0)
    throw replayError(
      'no_turn',
      `${id} has no finished turn to fork at that can be read`,
      '`troupe replay ls` shows the turns of each trajectory, `troupe replay verify` lists unreadable records',
    )
  refuseCaptured(parent)
  const code = recipeCode(withEngines(await configOf(recorded), options.engine ?? []), options.recipe)
  const tools = await toolsOf(parent, code, options.recipe)
  const turns = options.fromTurn === 'all' ? parent.texts.map((_, k) => k) : [options.fromTurn]
  const toolResult = options.editToolResult === undefined ? undefined : readToolResult(options.editToolResult)
  const { times = 1, seed, temperature } = options
  const at = systemEffects.now()
  const changes = {
    ...(seed === undefined ? {} : { seed }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(toolResult === undefined ? {} : { toolResult }),
    ...{ tools, times, at, deadlineMs: code.config.rollout.deadlineMs },
  }
  const byDirectory = new Map<string, { readonly weights: PublishedWeights; readonly turns: number[] }>()
  for (const turn of turns) {
    const weights = await weightsOf(recorded, parent, turn, options)
    const part = byDirectory.get(weights.directory)
    if (part === undefined) byDirectory.set(weights.directory, { weights, turns: [turn] })
    else part.turns.push(turn)
  }
  // Start orders (`order` of `rollout.requested`) must ascend over all parts (forks with the same weights): the
  // coordinator takes a request whose order is not above the highest so far for a repeated one, and ignores it.
  let order = 0
  const parts = [...byDirectory.values()].map((part): ForkPart => {
    const forks = part.turns.map(turn => {
      const facts = forkFacts({ parent, parentRun: recorded.run, turn, order, ...changes })
      order += times
      return facts
    })
    return { ...part, forks }
  })
  const stamp = new Date(at).toISOString().replace(/\D/g, '').slice(0, 17)
  const run = options.as ?? `fork-${recorded.run}-${stamp}`
  const started = await recorded.started()
  const { toolEnvironment: was } = started
  const differs = was === undefined ? [] : environmentChanges(was, await environmentOf(code.config.tools))
  return { parent, parentRun: recorded.run, started, code, turns, parts, run, environmentChanges: differs }
}

function withEngines(config: RecipeConfig, addresses: readonly string[]): RecipeConfig {
  const overrides = engineOverrides(addresses)
  if (overrides.length === 0) return config
  return parseConfig(recipeSchema, applyOverrides(config, overrides), 'the recipe of the run with --engine')
}

/**
 * Returns the names of the tools that the forks may call: with `given` (another recipe) all of its tools, else the
 * parent's tools.
 * @throws TroupeError replay.no_code when a tool or a reward is not in the recipe
 */
async function toolsOf(parent: Trajectory, code: RecipeCode, given: string | undefined): Promise<readonly string[]> {
  const names = (await toolSchemas(code)).map(({ name }) => name)
  const { request } = parent
  const { reward } = code.config
  const rewards = [reward.name, ...Object.keys(reward.weights ?? {}), request.task.reward].filter(name => name !== '')
  const known = [...builtInRewards, ...Object.keys(code.recipe.rewards ?? {})]
  const lacking = [
    ...(given === undefined ? request.tools : [])
      .filter(name => !names.includes(name))
      .map(name => `the tool '${name}'`),
    ...rewards.filter(name => !known.includes(name)).map(name => `the reward '${name}'`),
  ]
  if (lacking.length === 0) return given === undefined ? request.tools : names
  throw replayError(
    'no_code',
    `${lacking.join(' and ')} of ${request.trajectory} is code that the log does not contain`,
    'name the recipe that defines it: --recipe FILE',
  )
}

/**
 * Returns the weights that the fork continues with: the directory or the version that the options name; without either,
 * those of the version that sampled the last token of the turn, or of the version on disk that is nearest to it.
 */
async function weightsOf(
  recorded: RecordedRun,
  parent: Trajectory,
  turn: number,
  { model, policy }: ForkOptions,
): Promise<PublishedWeights> {
  if (model === undefined) {
    return nearestWeights(recorded, policy ?? sampledUnder(parent, turn), policy !== undefined)
  }
  const directory = resolve(model)
  if (!existsSync(join(directory, 'config.json')))
    throw replayError('no_weights', `${directory} contains no config.json`, 'give a model directory: --model DIR')
  return { directory, version: policyVersion(policy ?? 0), digest: '' }
}

function readToolResult(file: string): string {
  let text: string
  try {
    if (statSync(file).size <= maxToolResultBytes) return readFileSync(file, 'utf8')
    text = `${file} is over ${maxToolResultBytes / 1024} KiB, the limit for an edited tool result`
  } catch (thrown) {
    throw replayError('cannot_read', `${file} cannot be read: ${asError(thrown).message}`, 'give a readable text file')
  }
  throw replayError('too_large', text, 'shorten the text')
}
