/**
 * `troupe train RECIPE`: runs a recipe to its end and shows its progress.
 * stdout: the learning curve, or with --json a line for each step and a summary; stderr: progress and logs.
 */

import { type Command, Option } from 'commander'
import { roles } from '../../actors/run/run'
import { prepareForks } from '../../backends/pythonProcess'
import { knownAlarms, refuseAtStart } from '../../config'
import { engineOverrides } from '../../config/engineAddress'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { ownRecipe } from '../../recipes/load/ownRecipe'
import { systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import { directoryOf } from '../../runtime/runDirectory'
import type { Fault } from '../check/fault'
import { withBus, withDirectory } from '../options/busOptions'
import { listenAddress, wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { stopOverrides } from './stopOn'
import type { TrainOptions } from './trainOptions'

/** Adds the options that `train` and `rollout` share. */
export function withRunOptions(command: Command): Command {
  return withDirectory(withBus(command))
    .option(
      '--engine <address>',
      'engine: local, vllm:URL, sglang:URL or openai:URL (repeatable); or recorded:RUN, or simulated:FILE',
      repeatable,
      [],
    )
    .option('--set <path=value>', 'override a field of the recipe (repeatable)', repeatable, [])
    .option('--json', 'print a JSON line for each step, last a summary')
    .option('--run <id>', 'name of the run (default: recipe and time)')
    .option('--resume <id>', 'resume a run from its latest turns')
    .option('--steps <n>', 'end the run after this step', wholeNumber(0, 2 ** 31))
    .addOption(
      new Option('--role <role>', 'run one role of a run that several processes share').choices(roles).default('all'),
    )
    .option(
      '--partitions <n>',
      'partitions of a new run, shared among its coordinators (default: 1; with --role 4)',
      wholeNumber(1, 1024),
    )
    .option(
      '--serve-weights <host:port>',
      "address at which the learner serves new weights to hosts that do not see --dir (the host's address, and a free port)",
    )
    .option(
      '--accept-code',
      'resume or join a run that another version of the code started, or join with other packages for tools',
    )
    .option(
      '--dashboard [port]',
      'serve a page over the run on 127.0.0.1, and print its address (default port: 4173)',
      wholeNumber(0, 65_535),
    )
    .option('--metrics <[host:]port>', 'serve Prometheus metrics (default host: 127.0.0.1)', listenAddress)
}

export function registerTrain(program: Command): void {
  const command = program
    .command('train [recipe]')
    .description(
      'train a model: a name in recipes/, or a .yaml, .py, .ts or .js file; default: recipe.* of this directory',
    )
  withRunOptions(command)
    .option(
      '--stop-on <alarm>',
      `end the run when this alarm is raised: one of the recipe's alarms, or ${knownAlarms.join(', ')}`,
      repeatable,
      [],
    )
    .option(
      '--from-checkpoint <name>',
      'with --resume: continue from this checkpoint; the steps after it are computed again from the log',
    )
    .option('--dry-run', 'make one step on a small random model of the same architecture, and estimate the real run')
    .option('--estimate-only', 'with --dry-run: print only the estimate, without making the step')
    .action(async (recipe: string | undefined, options: TrainOptions) => {
      process.exitCode = await train(await recipeOf(recipe, options), options)
    })
}

/** Returns the recipe that the command names; else that of the run to resume; else that of the working directory. */
export async function recipeOf(named: string | undefined, { resume, bus, dir }: TrainOptions): Promise<string> {
  if (named !== undefined) return named
  if (resume === undefined) return ownRecipe()
  const { recordedSource } = require('./startedRun') as typeof import('./startedRun')
  return recordedSource(bus, resume, dir)
}

/**
 * Refuses --serve-weights for a process that does not train, before any part of the run exists.
 * @throws TroupeError cli.wrong_usage, engine.unsafe_bind
 */
function refuseServing({ serveWeights, learns }: TrainOptions, joins: boolean): void {
  if (serveWeights === undefined) return
  if (!joins && learns !== false) {
    const { weightAddress } =
      require('../../backends/weights/serveWeights') as typeof import('../../backends/weights/serveWeights')
    return void weightAddress(serveWeights)
  }
  throw new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: '--serve-weights is only for the process that trains, and this process does not train',
    hint: 'give the option to `train --role learner`; engines find the address in the log',
  })
}

const nothingResumed = () =>
  new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: '--from-checkpoint is only for a run that is resumed, and --resume is not given',
    hint: 'give both: train RECIPE --resume RUN --from-checkpoint NAME',
  })

const estimateAlone = () =>
  new TroupeError('cli.wrong_usage', {
    boundary: 'cli',
    retriable: false,
    message: '--estimate-only belongs to --dry-run, and --dry-run is not given',
    hint: 'give both: train RECIPE --dry-run --estimate-only',
  })

/**
 * Checks the whole recipe before anything of the run exists, and prints warnings. Returns the faults that do not stop a
 * dry run: what this machine lacks, if the recipe states its model's architecture. Otherwise it returns none.
 * @throws TroupeError config.problems, or the code of the only problem
 */
async function checkFirst(name: string, set: readonly string[], options: TrainOptions): Promise<readonly Fault[]> {
  const { checkRecipe, faultText, refuseFaults } =
    require('../check/checkRecipe') as typeof import('../check/checkRecipe')
  const { isOfMachine } = require('../check/fault') as typeof import('../check/fault')
  const { json, bus, dir, learns = true, dryRun } = options
  const place = dryRun || bus === 'memory:' ? {} : { directory: directoryOf(bus, dir) }
  const { faults, isPlan } = await checkRecipe(name, { set, learns, ...place })
  const lacking = dryRun && isPlan ? faults.filter(isOfMachine) : []
  refuseFaults(
    name,
    faults.filter(fault => !lacking.includes(fault)),
  )
  const warnings = faults.filter(({ kind }) => kind === 'warning')
  if (!json) for (const warning of warnings) process.stderr.write(`${faultText(warning)}\n`)
  return lacking
}

export async function train(name: string, options: TrainOptions): Promise<number> {
  const begun = systemEffects.elapsed()
  const { role = 'all' } = options
  const steps = options.steps === undefined ? [] : [`train.steps=${options.steps}`]
  const set = [...engineOverrides(options.engine ?? []), ...options.set]
  const overrides = [...set, ...steps]
  const { stopOn = [] } = options
  const joins = role !== 'all' && role !== 'learner'
  if (options.fromCheckpoint !== undefined && options.resume === undefined) throw nothingResumed()
  refuseServing(options, joins)
  const isNew = options.resume === undefined && !joins
  const checked = isNew && role === 'all' && !options.estimateOnly
  const doubts = checked ? await checkFirst(name, overrides, options) : []
  const stated = loadRecipe(name, isNew ? overrides : [])
  const stopping = stopOverrides(stated.config.value.alarms, stopOn)
  const loaded = isNew && stopping.length > 0 ? loadRecipe(name, [...overrides, ...stopping]) : stated
  if (isNew && options.learns !== false) refuseAtStart(loaded.config.value)
  if (options.estimateOnly) {
    if (!options.dryRun) throw estimateAlone()
    const { printEstimate } = require('../dryRun/estimateReport') as typeof import('../dryRun/estimateReport')
    return printEstimate(loaded.config.value, options.json === true)
  }
  if (options.dryRun) {
    const { dryRun } = require('../dryRun') as typeof import('../dryRun')
    return dryRun(loaded, options.json === true, doubts)
  }
  const { ranks } = loaded.config.value.train
  if (role === 'all' && options.learns !== false && ranks === 1) prepareForks()
  const { trainRun } = require('./trainRun') as typeof import('./trainRun')
  const whole = steps.length === 0 ? undefined : loadRecipe(name, isNew ? set : []).config.value
  return trainRun(name, loaded, options, { overrides, begun, recipeSteps: whole?.train.steps })
}
