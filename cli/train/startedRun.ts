/**
 * Reads a run's topics before the run is joined or resumed: its recipe, its partitions, and whether it exists. Waits
 * for the bus and for the learner, and refuses a run that the command line does not fit.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { refuseNewerFormats } from '../../actors/run/newerFormats'
import { checkCode, startOf } from '../../actors/run/runStart'
import { type RecipeConfig, recipeSchema } from '../../config'
import { recordedRecipe } from '../../config/recordedRecipe'
import { topicOnBus } from '../../messages'
import type { RunStarted } from '../../messages/facts'
import { recipeNames as names } from '../../recipes/load/loadRecipe'
import { dataDigest } from '../../runtime/digests'
import { systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'
import { openJournal } from '../../runtime/journal/openJournal'
import { directoryOf, openForReading, type RunContext, runNamed, runsOn } from '../../runtime/openRun'
import { runDirectory } from '../../runtime/runDirectory'
import { resolveConfig } from '../../runtime/settings/resolveConfig'
import { stopOverrides } from './stopOn'

const lookEveryMs = 250
const sayEveryMs = 10_000
const waitMs = 600_000

/**
 * Resolves the recipe that the run was started with, with the command line's overrides on top.
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
      message: `run '${journal.run}' cannot be resumed: its log has no run.started, the fact that begins a run`,
      hint: 'start it again with --run instead of --resume',
    })
  }
  refuseOtherRecipe(started, own)
  const layers = { what: `recipe ${name}`, recipe: recordedRecipe(started.recipe), names }
  const config = resolveConfig(recipeSchema, { ...layers, overrides }).value
  const stopping = stopOverrides(config.alarms, stopOn)
  return stopping.length === 0
    ? config
    : resolveConfig(recipeSchema, { ...layers, overrides: [...overrides, ...stopping] }).value
}

/**
 * Refuses a recipe of another name than the recipe that the run was started with.
 * @throws TroupeError config.other_recipe
 */
export function refuseOtherRecipe({ run, recipe }: RunStarted, own: Pick<RecipeConfig, 'name'>): void {
  if (recipe.name === own.name) return
  throw new TroupeError('config.other_recipe', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' was started with the recipe '${String(recipe.name)}', but this command names '${own.name}'`,
    hint: 'start, join and resume a run with the same recipe',
  })
}

/**
 * Returns the recipe that a run was started with, as its log names it. @throws TroupeError run.unknown_recipe if the
 * log does not say, or the file is gone; and the errors of opening a log
 */
export async function recordedSource(address: string, name: string, directory?: string): Promise<string> {
  const opened = await openForReading(address, name, { given: directory })
  const started = await startOf(openJournal(opened.bus, opened.blobs, opened.run)).finally(() => opened.bus.close())
  const { source } = started ?? {}
  if (source !== undefined && (!source.includes('/') || existsSync(source))) return source
  const why = source === undefined ? 'its log does not say which recipe it has' : `its recipe ${source} is gone`
  throw new TroupeError('run.unknown_recipe', {
    boundary: 'cli',
    retriable: false,
    message: `run '${name}': ${why}`,
    hint: `name the recipe: troupe train RECIPE --resume ${name}`,
  })
}

/** Number of partitions of the run's topic `trajectories`; undefined before the topic exists. */
export async function partitionsOfRun({ bus, run }: RunContext): Promise<number | undefined> {
  const topic = topicOnBus(run, 'trajectories')
  return (await bus.listTopics()).find(config => config.topic === topic)?.partitions
}

/** Reads the run's `run.started`; undefined if no process has started the run yet. */
export async function startedRun({ bus, run, journal }: RunContext): Promise<RunStarted | undefined> {
  return (await runsOn(bus)).includes(run) ? startOf(journal) : undefined
}

/** Refuses the name of a run that exists; a run without `run.started` does not count. @throws TroupeError run.exists */
export async function refuseTaken(context: RunContext): Promise<void> {
  if ((await startedRun(context)) === undefined) return
  throw new TroupeError('run.exists', {
    boundary: 'cli',
    retriable: false,
    message: `run '${context.run}' exists already`,
    hint: `give another name with --run; \`troupe train\`, \`rollout\` and \`eval\` resume a run with --resume ${context.run}`,
  })
}

/**
 * Upper bound in ms on the time for which a process retries while the broker does not answer. It is long enough for a
 * broker's restart.
 */
const brokerWaitMs = 30_000

/**
 * Retries `ask` while the bus is unreachable, for at most `brokerWaitMs`, since a part of a run may be started together
 * with its bus. Returns undefined if aborted.
 * @throws the last error of `ask`
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
      if (tries === 0) say(`${thrown.message}; retrying for ${brokerWaitMs / 1000} s`)
      await sleep(lookEveryMs)
    }
  }
}

/**
 * Waits until the learner has started the run, for at most `waitMs` and across a restart of the broker. `isAborted`
 * ends the wait; then the result is undefined.
 * @throws TroupeError cli.run_not_started
 */
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
    message: `run '${context.run}' was not started within ${waitMs / 60_000} minutes`,
    hint: `start its learner: troupe train RECIPE --role learner --run ${context.run}, on the same bus`,
  })
}

/**
 * Resolves the run's recipe for a process that joins it; the process's own `overrides` must not change a value.
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
  const config = resolveConfig(recipeSchema, {
    what: `run ${started.run}`,
    recipe: recordedRecipe(started.recipe),
  }).value
  refuseOtherRecipe(started, own)
  const what = `--set of a process that joins run ${started.run}`
  const mine = resolveConfig(recipeSchema, { what, recipe: recordedRecipe(started.recipe), overrides, names }).value
  if (dataDigest(mine) === dataDigest(config)) return config
  throw new TroupeError('config.other_recipe', {
    ...common,
    message: `options differ from the values that run '${started.run}' was started with: ${overrides.join(', ')}`,
    hint: 'a joining process takes the recipe from the run: omit --set, --engine and --steps, or give them to the learner that starts the run',
  })
}

/**
 * Refuses to resume a run that a newer version wrote to. Opens the run for reading, so that a refused one is left as it
 * is. It accepts a run that does not exist: the caller reports that.
 * @throws TroupeError run.newer_format, bus.newer_format, and the errors of opening a log
 */
export async function refuseNewerRun(address: string, name: string, directory: string | undefined): Promise<void> {
  if (
    address.startsWith('lmdb:') &&
    !existsSync(join(runDirectory(directoryOf(address), runNamed(name)).log, 'data.mdb'))
  )
    return
  if (address === 'memory:') return
  const given = { given: directory }
  const context = await whenBusIsThere(
    () => openForReading(address, name, given),
    () => {},
    () => false,
  ).catch(thrown => {
    if (thrown instanceof TroupeError && thrown.code === 'run.not_found') return undefined
    throw thrown
  })
  try {
    if (context !== undefined) await refuseNewerFormats(context)
  } finally {
    await context?.bus.close()
  }
}
