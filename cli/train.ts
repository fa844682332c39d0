/**
 * `troupe train RECIPE`: runs a recipe to its end, and says on the way how it goes.
 * stdout: with --json a line a step and a summary, else the learning curve; stderr: progress and logs.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { type Run, startRun } from '../actors/root'
import type { EngineStatus } from '../messages/commands'
import type { Fact } from '../messages/facts'
import type { Bus } from '../runtime/bus/bus'
import { holdRun } from '../runtime/bus/hold'
import { resolveConfig } from '../runtime/config'
import { systemEffects } from '../runtime/effects'
import { TroupeError } from '../runtime/errors'
import type { Journal } from '../runtime/journal'
import { createLog } from '../runtime/log'
import { type RecipeConfig, recipeSchema } from '../runtime/recipe'
import { runsOf } from '../runtime/runDirectory'
import { cpuUse } from './cpuUse'
import { collectedVersions } from './doctor'
import { runMetrics, serveMetrics } from './metrics'
import { progress, summaryOf } from './progress'
import { loadRecipe } from './recipes'
import { directoryOf, noRun, noRunOn, openRun, runsOn, withBus } from './runContext'
import { stopSignals } from './signals'
import { type RunView, type TrainViewOptions, trainView } from './trainView'

export interface TrainOptions {
  readonly bus: string
  readonly set: readonly string[]
  readonly json?: boolean
  readonly run?: string
  readonly resume?: string
  readonly steps?: number
  readonly dryRun?: boolean
  readonly acceptCode?: boolean
  readonly metrics?: number
  /** false: `rollout`. */
  readonly learns?: boolean
  /** What is shown of the run. Default: the learning curve. */
  readonly view?: (options: TrainViewOptions) => RunView
}

/** What a person watches need not move oftener. */
const viewLingerMs = 20

const gather = (value: string, before: readonly string[]) => [...before, value]

/** The options that `train` and `rollout` share. */
export function withRunOptions(command: Command): Command {
  return withBus(command)
    .option('--set <path=value>', 'override a field of the recipe; may be given many times', gather, [])
    .option('--json', 'a JSON line for each step, last a summary')
    .option('--run <id>', 'name of the run (default: recipe and time)')
    .option('--resume <id>', 'go on with a run, from the turns it was at')
    .option('--steps <n>', 'end after this step', Number)
    .option('--accept-code', 'resume a run that other code started')
    .option('--metrics <port>', 'serve Prometheus metrics on 127.0.0.1', Number)
}

export function registerTrain(program: Command): void {
  const command = program
    .command('train <recipe>')
    .description('train a model: a name in recipes/, or a .ts, .js or .yaml file')
  withRunOptions(command).action(async (recipe: string, options: TrainOptions) => {
    process.exitCode = await train(recipe, options)
  })
}

/** How often the children's CPU time and memory are looked at. */
const sampleMs = 5000
/** How long the end of a run waits for its last facts to be shown. */
const catchUpMs = 5000

const timestamp = () => new Date().toISOString().replace(/[-:]/g, '').replace('T', '-').slice(0, 15)

export async function train(name: string, options: TrainOptions): Promise<number> {
  const begun = systemEffects.elapsed()
  const overrides = options.steps === undefined ? options.set : [...options.set, `train.steps=${options.steps}`]
  const loaded = loadRecipe(name, options.resume === undefined ? overrides : [])
  const { recipe } = loaded
  const id = options.resume ?? options.run ?? `${loaded.config.value.name}-${timestamp()}`
  refuseWrongName(options, id)

  const log = createLog('troupe')
  const context = await openRun(options.bus, id, 'write')
  let lose: (error: Error) => void = () => {}
  const lost = new Promise<never>((_, reject) => {
    lose = reject
  })
  lost.catch(() => {}) // seen through the race below
  const opening = async () => {
    if (isShared(options)) await refuseWrongNameOn(context.bus, options, id)
    const resolved =
      options.resume === undefined ? loaded.config.value : await recordedConfig(context.journal, name, overrides)
    return { config: resolved, hold: isShared(options) ? await holdRun(context.bus, context.run, lose) : undefined }
  }
  const { config, hold } = await opening().catch(async thrown => {
    await context.bus.close()
    throw thrown
  })
  const state = progress()
  const view = (options.view ?? trainView)({ json: options.json === true, config, run: id, fx: systemEffects })
  const metrics = await serveMetrics(options.metrics)
  const signals = stopSignals()
  view.begin()
  let run: Run | undefined
  try {
    run = await startRun({
      run: context.run,
      recipe,
      config,
      directory: context.files.root,
      modelDirectory: context.files.model,
      bus: context.bus,
      blobs: context.blobs,
      resume: options.resume !== undefined,
      learns: options.learns !== false,
      acceptCode: options.acceptCode === true,
      fx: systemEffects,
      log,
      metrics: metrics.registry,
      versions: collectedVersions(),
      onColdStart: (done, loss) => view.coldStart(done, loss),
    })
    const usage = cpuUse()
    const measure = runMetrics(metrics.registry)
    const stop = await watch(run.journal, (message, live) => {
      usage.take(message)
      measure(message)
      const report = state.take(message)
      if (!live) return // an earlier process has shown it
      if (report?.type === 'step') view.step(report)
      else if (report?.type === 'evaluation.completed') view.evaluation(report)
      else if (message.type === 'alarm.raised') view.alarm(message)
      else if (message.type === 'stage.changed') view.stage(message)
      view.tick(state)
    })
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
    metrics.close()
    await run?.close() // closed already, unless something failed
    await hold?.release()
    await context.bus.close()
  }
}

function refuseWrongName(options: TrainOptions, id: string): void {
  if (!options.bus.startsWith('lmdb:')) return
  const directory = directoryOf(options.bus)
  const exists = runsOf(directory).includes(id)
  if (options.resume !== undefined && !exists) throw noRun(directory, id)
  if (options.resume === undefined && exists) throw runExists(id)
}

/** Whether other processes, and other runs, may be on the same bus: an embedded log is one run's and has a lease. */
const isShared = (options: TrainOptions): boolean => options.bus.startsWith('kafka:')

/** On a bus that several runs share, its topics say which there are. */
async function refuseWrongNameOn(bus: Bus, options: TrainOptions, id: string): Promise<void> {
  const runs = await runsOn(bus)
  if (options.resume !== undefined && !runs.includes(id)) throw noRunOn(options.bus, runs, id)
  if (options.resume === undefined && runs.includes(id)) throw runExists(id)
}

function runExists(id: string): TroupeError {
  return new TroupeError('cli.run_exists', {
    boundary: 'cli',
    retriable: false,
    message: `there is a run '${id}' already`,
    hint: `go on with it: --resume ${id}; or take another name: --run`,
  })
}

/** A run goes on under the recipe that it was started with, and what the command line says now on top. */
async function recordedConfig(journal: Journal, name: string, overrides: readonly string[]): Promise<RecipeConfig> {
  const [first] = await journal.read('runs', 0, 0, 1)
  if (first?.message.type !== 'run.started') {
    throw new TroupeError('cli.run_empty', {
      boundary: 'cli',
      retriable: false,
      message: `run '${journal.run}' holds no run.started: it ended before it began`,
      hint: 'start it anew under another name',
    })
  }
  return resolveConfig(recipeSchema, { what: `recipe ${name}`, recipe: first.message.recipe, overrides }).value
}

const watched = ['trajectories', 'runs', 'learner'] as const
type Take = (message: Fact | EngineStatus, live: boolean) => void

/**
 * Every message of the run, from its first: what an earlier process left, topic after topic, then what comes.
 * The function that it gives back waits until all that is in the log was taken, and ends it.
 */
async function watch(journal: Journal, take: Take): Promise<() => Promise<void>> {
  const seen = new Map<string, number>()
  const places = async () => {
    const found: (readonly [(typeof watched)[number], number])[] = []
    for (const topic of watched) {
      for (let p = 0; p < (await journal.partitionsOf(topic)); p++) found.push([topic, p])
    }
    return found
  }
  for (const [topic, partition] of await places()) {
    const { oldest, next } = await journal.offsets(topic, partition)
    for (let at = oldest; at < next; ) {
      const entries = await journal.read(topic, partition, at, 1024)
      for (const { message } of entries) take(message as Fact, false)
      at = entries.length === 0 ? next : entries.at(-1)!.offset + 1
    }
    seen.set(`${topic}#${partition}`, next)
  }
  const following = await journal.follow(
    {
      group: 'train-view',
      lingerMs: viewLingerMs,
      feeds: [...watched.map(topic => ({ topic, from: 'oldest' as const })), { topic: 'telemetry', from: 'latest' }],
      onError: error => process.stderr.write(`progress is no longer shown: ${error.message}\n`),
    },
    async entries => {
      for (const { message, topic, partition, offset } of entries) {
        const place = `${topic}#${partition}`
        if (offset < (seen.get(place) ?? 0)) continue
        seen.set(place, offset + 1)
        take(message as Fact | EngineStatus, true)
      }
    },
  )
  return async () => {
    const deadline = systemEffects.elapsed() + catchUpMs
    for (const [topic, partition] of await places()) {
      const { next } = await journal.offsets(topic, partition)
      while ((seen.get(`${topic}#${partition}`) ?? 0) < next && systemEffects.elapsed() < deadline) await sleep(20)
    }
    await following.close()
  }
}
