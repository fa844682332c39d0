/**
 * A run that has been started, as its topics tell: its recipe, its partitions, and whether it is there yet.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { checkCode, startOf } from '../../actors/run/announce'
import { type RecipeConfig, recipeSchema } from '../../config'
import { topicOnBus } from '../../messages'
import type { RunStarted } from '../../messages/facts'
import { recipeNames as names } from '../../recipes/load/loadRecipe'
import { dataDigest } from '../../runtime/digests'
import { systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'
import { type RunContext, runsOn } from '../../runtime/openRun'
import { resolveConfig } from '../../runtime/settings/resolveConfig'
import { stopOverrides } from './stopOn'

const lookEveryMs = 250
const sayEveryMs = 10_000
const waitMs = 600_000

/**
 * A run goes on under the recipe that it was started with, and what the command line says now on top.
 * `own` is the recipe that the command names. @throws TroupeError cli.run_empty, config.other_recipe
 */
export async function recordedConfig(
  journal: Journal,
  name: string,
  own: Pick<RecipeConfig, 'name'>,
  overrides: readonly string[],
  stopOn: readonly string[] = [],
): Promise<RecipeConfig> {
  const started = await startOf(journal)
  if (started === undefined) {
    throw new TroupeError('cli.run_empty', {
      boundary: 'cli',
      retriable: false,
      message: `run '${journal.run}' holds no run.started: it ended before it began`,
      hint: 'start it anew: --run in place of --resume',
    })
  }
  refuseOtherRecipe(started, own)
  const layers = { what: `recipe ${name}`, recipe: started.recipe, names }
  const config = resolveConfig(recipeSchema, { ...layers, overrides }).value
  const stopping = stopOverrides(config.alarms, stopOn)
  return stopping.length === 0
    ? config
    : resolveConfig(recipeSchema, { ...layers, overrides: [...overrides, ...stopping] }).value
}

/** @throws TroupeError config.other_recipe */
export function refuseOtherRecipe({ run, recipe }: RunStarted, own: Pick<RecipeConfig, 'name'>): void {
  if (recipe.name === own.name) return
  throw new TroupeError('config.other_recipe', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' is one of the recipe '${String(recipe.name)}', and this process was given '${own.name}'`,
    hint: 'give all processes of a run, and whoever resumes it, the same recipe',
  })
}

/** How many partitions the run's topics have; undefined before they are made. */
export async function partitionsOfRun({ bus, run }: RunContext): Promise<number | undefined> {
  const topic = topicOnBus(run, 'trajectories')
  return (await bus.listTopics()).find(config => config.topic === topic)?.partitions
}

/** The run's first fact, or undefined where nobody has started the run yet. */
export async function startedRun({ bus, run, journal }: RunContext): Promise<RunStarted | undefined> {
  return (await runsOn(bus)).includes(run) ? startOf(journal) : undefined
}

/** A name whose run ended before it began can be had again. @throws TroupeError cli.run_exists */
export async function refuseTaken(context: RunContext): Promise<void> {
  if ((await startedRun(context)) === undefined) return
  throw new TroupeError('cli.run_exists', {
    boundary: 'cli',
    retriable: false,
    message: `there is a run '${context.run}' already`,
    hint: `go on with it: --resume ${context.run}; or take another name: --run`,
  })
}

/** How long a process that takes one part of a run waits for a broker that does not answer: one that restarts is back by then. */
const brokerWaitMs = 30_000

/**
 * A part of a run is no use without its bus, and may be started with it. Undefined where the wait was aborted.
 * @throws what `ask` throws at last
 */
export async function whenBusIsThere<T>(
  ask: () => Promise<T>,
  say: (text: string) => void,
  isAborted: () => boolean,
): Promise<T | undefined> {
  const begun = systemEffects.elapsed()
  for (let tries = 0; ; tries++) {
    try {
      return await ask()
    } catch (thrown) {
      const isOut = thrown instanceof TroupeError && thrown.code === 'bus.unreachable'
      if (!isOut) throw thrown
      if (isAborted()) return undefined
      if (systemEffects.elapsed() - begun > brokerWaitMs) throw thrown
      if (tries === 0) say(`${thrown.message}; asking for ${brokerWaitMs / 1000} s`)
      await sleep(lookEveryMs)
    }
  }
}

/** Waits for the learner to start the run, over a broker that restarts too. `isAborted` ends the wait. @throws TroupeError cli.run_not_started */
export async function waitForRun(
  context: RunContext,
  say: (text: string) => void,
  isAborted: () => boolean,
): Promise<RunStarted | undefined> {
  const begun = systemEffects.elapsed()
  for (let saidAt = Number.NEGATIVE_INFINITY; !isAborted(); await sleep(lookEveryMs)) {
    const started = await whenBusIsThere(() => startedRun(context), say, isAborted)
    if (started !== undefined) return started
    if (isAborted()) break
    const now = systemEffects.elapsed()
    if (now - begun > waitMs) break
    if (now - saidAt < sayEveryMs) continue
    say(`waiting for the learner of run '${context.run}', ${Math.round((now - begun) / 1000)} s`)
    saidAt = now
  }
  if (isAborted()) return undefined
  throw new TroupeError('cli.run_not_started', {
    boundary: 'cli',
    retriable: true,
    message: `nobody has started run '${context.run}' within ${waitMs / 60_000} minutes`,
    hint: `start its learner: troupe train RECIPE --role learner --run ${context.run}, on the same bus`,
  })
}

/**
 * The run's recipe, for a process that joins it with `overrides` of its own.
 * @throws TroupeError config.other_code, config.other_recipe
 */
export function joinedConfig(
  started: RunStarted,
  own: RecipeConfig,
  overrides: readonly string[],
  acceptCode: boolean,
): RecipeConfig {
  checkCode(started, acceptCode)
  const common = { boundary: 'config', retriable: false } as const
  const config = resolveConfig(recipeSchema, { what: `run ${started.run}`, recipe: started.recipe }).value
  refuseOtherRecipe(started, own)
  const what = `--set of a process that joins run ${started.run}`
  const mine = resolveConfig(recipeSchema, { what, recipe: started.recipe, overrides, names }).value
  if (dataDigest(mine) === dataDigest(config)) return config
  throw new TroupeError('config.other_recipe', {
    ...common,
    message: `--set says other values than run '${started.run}' was started with: ${overrides.join(', ')}`,
    hint: 'a process that joins takes the recipe from the run: leave --set out, or give it to the learner that starts the run',
  })
}
