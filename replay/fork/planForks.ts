/**
 * Plans the forks of a trajectory: which turns are shared, with which weights and which code each fork goes on.
 *
 * in   a recorded trajectory, what its forks do otherwise        out  the facts that the forks begin with, by weights
 * Invariant: everything that a fork needs (weights, tools, rewards) is there before a run is begun.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { toolSchemas } from '../../actors/tools/runTools'
import { builtInRewards } from '../../config'
import type { RunStarted } from '../../messages/facts'
import { policyVersion, type RunId } from '../../messages/ids'
import { systemEffects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { nearestWeights, type PublishedWeights, sampledUnder } from '../learning/publishedWeights'
import { type RecipeCode, recipeCode } from '../log/recipeCode'
import { configOf } from '../log/recordedConfig'
import type { RecordedRun } from '../log/recordedRun'
import { replayError } from '../replayError'
import { resolveId, trajectoriesOf } from '../trajectories/resolveId'
import { readTrajectories, type Trajectory } from '../trajectories/trajectory'
import { type ForkFacts, forkFacts, turnsOf } from './forkFacts'

export interface ForkOptions {
  /** Turns before this one are shared; `all`: forks at every turn. */
  readonly fromTurn: number | 'all'
  /** Forks of each turn. Default 1. */
  readonly times?: number
  /** Default: derived from the parent's seed. */
  readonly seed?: number
  /** Default: the parent's temperature. */
  readonly temperature?: number
  /** File with the text that the model is shown instead of the tool result before the turn; at most 256 KiB. */
  readonly editToolResult?: string
  /** Policy version to go on with. Default: the version that sampled the turn, or the nearest that is on disk. */
  readonly policy?: number
  /** Directory of weights to go on with. */
  readonly model?: string
  /** Name or file of a recipe whose tools and rewards the forks use. Default: the run's own. */
  readonly recipe?: string
  /** Name of the run of the forks. Default: `fork-`, the parent's run and the time. */
  readonly as?: string
}

/** Turns whose forks go on with the same weights. */
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
  /** Name of the run of the forks. */
  readonly run: string
}

const maxToolResultBytes = 256 * 1024

/**
 * `asked`: a trajectory, or a part of its id.
 * @throws TroupeError replay.no_match, replay.ambiguous, replay.no_turn, replay.no_tool_result, replay.no_code,
 * replay.no_weights, replay.too_large, replay.cannot_read, config.no_recipe, config.invalid
 */
export async function planForks(recorded: RecordedRun, asked: string, options: ForkOptions): Promise<ForkPlan> {
  const id = resolveId(asked, await trajectoriesOf(recorded))
  const [parent] = await readTrajectories(recorded, t => t === id)
  if (parent === undefined || turnsOf(parent) === 0) throw refused('no_turn', `${id} has no finished turn to fork at`)
  const code = recipeCode(await configOf(recorded), options.recipe)
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
  // Start orders ascend over all parts: an order below an earlier one would be taken for a repetition.
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
  return { parent, parentRun: recorded.run, started: await recorded.started(), code, turns, parts, run }
}

/** Tools that the forks may call: all of another recipe, else the parent's. @throws TroupeError replay.no_code where one is not found */
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
    `${lacking.join(' and ')} of ${request.trajectory} is code that no log holds`,
    '--recipe FILE names the recipe that brings it',
  )
}

/** The weights that were asked for, else those of the version that sampled the turn, or the nearest that are on disk. */
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
  if (!existsSync(join(directory, 'config.json'))) throw refused('no_weights', `${directory} holds no config.json`)
  return { directory, version: policyVersion(policy ?? 0), digest: '' }
}

function readToolResult(file: string): string {
  let text: string
  try {
    if (statSync(file).size <= maxToolResultBytes) return readFileSync(file, 'utf8')
    text = `${file} is over ${maxToolResultBytes / 1024} KiB, more than any tool result`
  } catch (thrown) {
    throw refused('cannot_read', `${file} cannot be read: ${asError(thrown).message}`)
  }
  throw refused('too_large', text)
}

const refused = (code: string, message: string) => replayError(code, message, '--model DIR takes weights from anywhere')
