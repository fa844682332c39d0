/**
 * `troupe train RECIPE`: runs a recipe to its end and shows its progress.
 * stdout: the learning curve, or with --json a line for each step and a summary; stderr: progress and logs.
 */

import { type Command, Option } from 'commander'
import { checkFileEngine } from '../../actors/inference/fileEngine'
import { joinRun } from '../../actors/run/joinRun'
import { startRun } from '../../actors/run/root'
import { type Role, type Run, type RunOptions, roles } from '../../actors/run/run'
import { notTrainable } from '../../backends/engines/openai/openai'
import { recordingNotTrainable } from '../../backends/engines/recorded/recorded'
import { weightAddress } from '../../backends/weights/serveWeights'
import { knownAlarms, type RecipeConfig, refuseAtStart } from '../../config'
import { engineOverrides } from '../../config/engineAddress'
import { refuseShortDeadlines } from '../../config/estimate/deadlineFaults'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { progress, summaryOf } from '../../replay/learning/progress'
import { type Take, watchRun } from '../../replay/log/watchRun'
import { lockRun } from '../../runtime/bus/runLock'
import { collectedVersions } from '../../runtime/collectedVersions'
import { systemEffects } from '../../runtime/effects'
import { TroupeError } from '../../runtime/errors'
import { createLog } from '../../runtime/log'
import { openRun } from '../../runtime/openRun'
import { stopSignals } from '../io/signals'
import { reportUnfollowed } from '../io/terminal'
import { withBus, withDirectory } from '../options/busOptions'
import { wholeNumber } from '../options/readers'
import { repeatable } from '../options/repeatable'
import { cpuUse } from './cpuUse'
import { type MetricsServer, runMetrics, serveMetrics } from './metrics'
import { takeRole } from './role'
import { isShared, refuseWrongName, refuseWrongNameOn } from './runName'
import { partitionsOfRun, recordedConfig, refuseTaken, startedRun, whenBusIsThere } from './startedRun'
import { stopOverrides } from './stopOn'
import { type RunView, type TrainViewOptions, trainView } from './view'

export interface TrainOptions {
  readonly bus: string
  readonly dir?: string
  readonly role?: Role
  readonly partitions?: number
  readonly set: readonly string[]
  readonly engine?: readonly string[]
  readonly json?: boolean
  readonly run?: string
  readonly resume?: string
  readonly fromCheckpoint?: string
  readonly serveWeights?: string
  readonly steps?: number
  readonly stopOn?: readonly string[]
  readonly dryRun?: boolean
  readonly estimateOnly?: boolean
  readonly acceptCode?: boolean
  readonly metrics?: number
  /** False for `troupe rollout` and `troupe eval`, which do not train. */
  readonly learns?: boolean
  /** Creates the view that prints the run. Default: the learning curve. */
  readonly view?: (options: TrainViewOptions) => RunView
}

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
    .option('--accept-code', 'resume or join a run that another version of the code started')
    .option('--metrics <port>', 'serve Prometheus metrics on 127.0.0.1', wholeNumber(0, 65_535))
}

export function registerTrain(program: Command): void {
  const command = program
    .command('train <recipe>')
    .description('train a model: a name in recipes/, or a .ts, .js or .yaml file')
  withRunOptions(command)
    .option(
      '--stop-on <alarm>',
      `end the run when this alarm is raised: one of the recipe's alarms, or ${knownAlarms.join(', ')}`,
      repeatable,
      [],
    )
    .option(
      '--from-checkpoint <name>',
      'with --resume: go on from this checkpoint; the steps since are computed again from the log',
    )
    .option('--dry-run', 'make one step on a small random model of the same architecture, and estimate the real run')
    .option('--estimate-only', 'with --dry-run: print the estimate alone, without making the step')
    .action(async (recipe: string, options: TrainOptions) => {
      process.exitCode = await train(recipe, options)
    })
}

/** Default number of partitions of a run whose coordinators may be several processes. */
const sharedPartitions = 4
/** Milliseconds between samples of the child processes' CPU time and memory. */
const sampleMs = 5000

export const timestamp = () => new Date().toISOString().replace(/[-:]/g, '').replace('T', '-').slice(0, 15)

/**
 * Refuses to train on an engine that cannot take new weights, before any part of the run exists.
 * @throws TroupeError engine.not_trainable
 */
function refuseUntrained({ engine }: RecipeConfig, learns: boolean): void {
  if (!learns) return
  if (engine.kind === 'openai') throw notTrainable(engine.urls[0] ?? '')
  if (engine.kind === 'recorded') throw recordingNotTrainable(engine.recording ?? '')
}

/**
 * Refuses --serve-weights for a process that does not train, before any part of the run exists.
 * @throws TroupeError cli.wrong_usage, engine.unsafe_bind
 */
function refuseServing({ serveWeights, learns }: TrainOptions, joins: boolean): void {
  if (serveWeights === undefined) return
  if (!joins && learns !== false) return void weightAddress(serveWeights)
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

export async function train(name: string, options: TrainOptions): Promise<number> {
  const begun = systemEffects.elapsed()
  const { role = 'all' } = options
  const steps = options.steps === undefined ? [] : [`train.steps=${options.steps}`]
  const overrides = [...engineOverrides(options.engine ?? []), ...options.set, ...steps]
  const { stopOn = [] } = options
  const joins = role !== 'all' && role !== 'learner'
  if (options.fromCheckpoint !== undefined && options.resume === undefined) throw nothingResumed()
  refuseServing(options, joins)
  const isNew = options.resume === undefined && !joins
  const stated = loadRecipe(name, isNew ? overrides : [])
  const stopping = stopOverrides(stated.config.value.alarms, stopOn)
  const loaded = isNew && stopping.length > 0 ? loadRecipe(name, [...overrides, ...stopping]) : stated
  const { recipe } = loaded
  if (isNew && options.learns !== false) refuseAtStart(loaded.config.value)
  if (options.estimateOnly) {
    if (!options.dryRun) throw estimateAlone()
    const { printEstimate } = require('../dryRun/estimateReport') as typeof import('../dryRun/estimateReport')
    return printEstimate(loaded.config.value, options.json === true)
  }
  if (options.dryRun) {
    const { dryRun } = require('../dryRun') as typeof import('../dryRun')
    return dryRun(loaded, options.json === true)
  }
  if (isNew && options.learns !== false) refuseShortDeadlines(loaded.config.value)
  const id = options.resume ?? options.run ?? `${loaded.config.value.name}-${timestamp()}`
  const named = { ...options, role }
  refuseWrongName(named, id)
  refuseUntrained(loaded.config.value, options.learns !== false)
  if (joins) return takeRole(loaded, { ...options, role, run: id, set: overrides })

  const log = createLog('troupe')
  const open = () => openRun(options.bus, id, 'write', options.dir)
  const say = (text: string) => void process.stderr.write(`${text}\n`)
  const context = role === 'all' ? await open() : (await whenBusIsThere(open, say, () => false))!
  let lose: (error: Error) => void = () => {}
  const lost = new Promise<never>((_, reject) => {
    lose = reject
  })
  lost.catch(() => {}) // the race below handles the rejection
  const opening = async () => {
    if (isShared(options)) await refuseWrongNameOn(context.bus, named, id)
    const partitions = await partitionsOfRun(context)
    if (isNew && role === 'all') await refuseTaken(context)
    const isThere = options.resume !== undefined || (role === 'learner' && (await startedRun(context)) !== undefined)
    const config = isThere
      ? await recordedConfig(context.journal, name, loaded.config.value, overrides, stopOn)
      : loaded.config.value
    refuseUntrained(config, options.learns !== false)
    const { run, bus, blobs, files } = context
    await checkFileEngine({ config, log, run, bus, blobs, directory: files.root })
    return {
      config,
      partitions: options.partitions ?? partitions ?? (role === 'all' ? 1 : sharedPartitions),
      hold: isShared(options) && role === 'all' ? await lockRun(context.bus, context.run, lose) : undefined,
    }
  }
  const { config, partitions, hold } = await opening().catch(async thrown => {
    await context.bus.close()
    throw thrown
  })
  const state = progress(config.selection)
  const view = (options.view ?? trainView)({ json: options.json === true, config, run: id, fx: systemEffects })
  const signals = stopSignals()
  let metrics: MetricsServer | undefined
  let run: Run | undefined
  try {
    metrics = await serveMetrics(options.metrics)
    const { registry } = metrics
    view.begin()
    const begin = role === 'all' ? startRun : (given: RunOptions) => joinRun({ ...given, role })
    run = await begin({
      run: context.run,
      partitions,
      recipe,
      config,
      directory: context.files.root,
      modelDirectory: context.files.model,
      bus: context.bus,
      blobs: context.blobs,
      resume: options.resume !== undefined,
      learns: options.learns !== false,
      ...(options.serveWeights === undefined ? {} : { serveWeights: options.serveWeights }),
      acceptCode: options.acceptCode === true,
      ...(options.fromCheckpoint === undefined ? {} : { fromCheckpoint: options.fromCheckpoint }),
      fx: systemEffects,
      log,
      metrics: registry,
      versions: collectedVersions(),
      onColdStart: (done, loss) => view.coldStart(done, loss),
      onStanding: standing => view.standing(standing),
    })
    const usage = cpuUse()
    const measure = runMetrics(registry)
    const show: Take = (message, live) => {
      usage.take(message)
      measure(message)
      const report = state.take(message)
      if (!live) return // the message was in the log already: an earlier process showed it
      if (report?.type === 'step') view.step(report)
      else if (report?.type === 'evaluation.completed') view.evaluation(report)
      else if (message.type === 'alarm.raised') view.alarm(message)
      else if (message.type === 'record.refused') view.refused(message)
      else if (message.type === 'stage.changed') view.stage(message)
      view.tick(state)
    }
    const stop = await watchRun(run.journal, show, reportUnfollowed)
    const sampling = setInterval(() => usage.sample(), sampleMs)
    const ended = await Promise.race([run.finished, signals.stopped, lost]).finally(() => clearInterval(sampling))
    const used = usage.split()
    await stop()
    await run.close()
    const seconds = (systemEffects.elapsed() - begun) / 1000
    const [outcome, reason] = typeof ended === 'string' ? ['stopped', ended] : [ended.outcome, ended.reason]
    view.end(summaryOf(state, id, outcome, reason, seconds), used)
    if (typeof ended === 'string') return signals.exitCode()
    return ended.outcome === 'done' ? 0 : 1
  } finally {
    signals.release()
    view.close()
    metrics?.close()
    await run?.close() // the run is already closed, unless something failed
    await hold?.release()
    await context.bus.close()
  }
}
