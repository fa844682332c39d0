/**
 * Runs a recipe to its end, or takes one role of a run, for `troupe train`, `troupe rollout` and `troupe eval`.
 *
 * in   a loaded recipe, the command's options and overrides        out  the exit code; what the view prints
 * Invariant: this file is loaded only once a run begins, so that estimates and the refusals of train/index.ts, which
 * come before it, do not wait for what it imports.
 */
import { checkFileEngine } from '../../actors/inference/fileEngine'
import { joinRun } from '../../actors/run/joinRun'
import { startRun } from '../../actors/run/root'
import type { Run, RunOptions } from '../../actors/run/run'
import { notTrainable } from '../../backends/engines/openai/openai'
import { recordingNotTrainable } from '../../backends/engines/recorded/recorded'
import type { RecipeConfig } from '../../config'
import { refuseUnfit } from '../../config/unfit'
import type { ControlObeyed } from '../../messages/facts'
import { type LoadedRecipe, sourceOf } from '../../recipes/load/loadRecipe'
import { progress, summaryOf } from '../../replay/learning/progress'
import { type Take, watchRun } from '../../replay/log/watchRun'
import { lockRun } from '../../runtime/bus/runLock'
import { collectedVersions } from '../../runtime/collectedVersions'
import { systemEffects } from '../../runtime/effects'
import { createLog } from '../../runtime/log'
import { openRun } from '../../runtime/openRun'
import { stopSignals } from '../io/signals'
import { reportUnfollowed } from '../io/terminal'
import { placeOptions } from '../options/busOptions'
import { startAgents } from '../startAgents'
import { cpuUse } from './cpuUse'
import { checkDashboardBus, startDashboard } from './dashboardProcess'
import { type MetricsServer, runMetrics, serveMetrics } from './metrics'
import { takeRole } from './role'
import { isShared, refuseWrongName, refuseWrongNameOn, timestamp } from './runName'
import { partitionsOfRun, recordedConfig, refuseNewerRun, refuseTaken, startedRun, whenBusIsThere } from './startedRun'
import { checkTrackersBus, startTrackers } from './trackerProcesses'
import type { TrainOptions } from './trainOptions'
import { trainView } from './view'

/** Default number of partitions of a run whose coordinators may be several processes. */
const sharedPartitions = 4
/** Milliseconds between samples of the child processes' CPU time and memory. */
const sampleMs = 5000

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
 * `overrides`: values of `--set` and of the options that stand for one. `begun`: when the command began, elapsed ms.
 * `recipeSteps`: steps of the recipe, if --steps ends the run earlier or later.
 */
export interface Given {
  readonly overrides: readonly string[]
  readonly begun: number
  readonly recipeSteps: number | undefined
}

const defaultDashboardPort = 4173

/** Starts the page of `--dashboard`; undefined without the option. */
function dashboardOf({ dashboard, ...options }: TrainOptions, run: string): (() => void) | undefined {
  if (dashboard === undefined) return undefined
  const port = dashboard === true ? defaultDashboardPort : dashboard
  return startDashboard({ ...placeOf(options), run, port })
}

/** Bus and directory by which another process finds the run. */
const placeOf = ({ bus, dir }: Pick<TrainOptions, 'bus' | 'dir'>) => ({ bus, ...(dir === undefined ? {} : { dir }) })

/** Runs the recipe `name`, which is loaded already, or takes a role in a run of it. Returns the exit code. */
export async function trainRun(
  name: string,
  loaded: LoadedRecipe,
  options: TrainOptions,
  { overrides, begun, recipeSteps }: Given,
): Promise<number> {
  const { recipe } = loaded
  const { role = 'all', stopOn = [] } = options
  const joins = role !== 'all' && role !== 'learner'
  const isNew = options.resume === undefined && !joins
  if (isNew && options.learns !== false) refuseUnfit(loaded.config.value)
  const id = options.resume ?? options.run ?? `${loaded.config.value.name}-${timestamp()}`
  const named = { ...options, role }
  refuseWrongName(named, id)
  refuseUntrained(loaded.config.value, options.learns !== false)
  if (options.dashboard !== undefined) checkDashboardBus(options.bus)
  if (joins) return takeRole(loaded, { ...options, role, run: id, set: overrides })

  if (options.resume !== undefined) await refuseNewerRun(options.bus, id, options.dir)
  const log = createLog('troupe')
  const open = () => openRun(options.bus, id, 'write', options.dir)
  const say = (text: string) => void process.stderr.write(`${text}\n`)
  const context = role === 'all' ? await open() : (await whenBusIsThere(open, say, () => false))!
  let lose: (error: Error) => void = () => {}
  const lost = new Promise<never>((_, reject) => {
    lose = reject
  })
  lost.catch(() => {}) // avoids an unhandled rejection: the race below reports the error
  const opening = async () => {
    if (isShared(options)) await refuseWrongNameOn(context.bus, named, id)
    const partitions = await partitionsOfRun(context)
    if (isNew && role === 'all') await refuseTaken(context)
    const isThere = options.resume !== undefined || (role === 'learner' && (await startedRun(context)) !== undefined)
    const config = isThere
      ? await recordedConfig(context.journal, name, loaded.config.value, overrides, stopOn)
      : loaded.config.value
    refuseUntrained(config, options.learns !== false)
    checkTrackersBus(options.bus, config.trackers ?? [])
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
  const state = progress({ positiveAbove: config.selection.positiveAbove, onlyEnds: true })
  const place = placeOptions(options)
  const view = (options.view ?? trainView)({
    ...{ json: options.json === true, config, run: id, fx: systemEffects, place },
    ...(recipeSteps === undefined ? {} : { recipeSteps }),
    ...(role === 'all'
      ? { resumedBy: `npx troupe ${options.learns === false ? 'rollout' : 'train'} ${name} --resume ${id}${place}` }
      : {}),
  })
  const signals = stopSignals()
  let metrics: MetricsServer | undefined
  let run: Run | undefined
  let endDashboard: (() => void) | undefined
  let endTrackers: (() => Promise<void>) | undefined
  try {
    metrics = await serveMetrics(options.metrics)
    const { registry } = metrics
    view.begin()
    endDashboard = dashboardOf(options, id)
    const begin = role === 'all' ? startRun : (given: RunOptions) => joinRun({ ...given, role })
    run = await signals.starting(stop =>
      begin({
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
        source: sourceOf(name),
        ...(options.fromCheckpoint === undefined ? {} : { fromCheckpoint: options.fromCheckpoint }),
        fx: systemEffects,
        log,
        metrics: registry,
        versions: collectedVersions(),
        stop,
        onStanding: standing => view.standing(standing),
        startAgents,
      }),
    )
    if (run === undefined) return signals.exitCode()
    endTrackers = startTrackers({ ...placeOf(options), run: id, trackers: config.trackers ?? [] })
    const usage = cpuUse()
    const measure = runMetrics(registry)
    let order: ControlObeyed | undefined
    let startedAt: number | undefined
    const show: Take = (message, live) => {
      usage.take(message)
      measure(message)
      const report = state.take(message)
      if (message.type === 'control.obeyed') order = message
      if (message.type === 'run.started') startedAt ??= message.at
      if (!live) return // the message was in the log already: an earlier process showed it
      if (report?.type === 'step') view.step(report)
      else if (report?.type === 'evaluation.completed') view.evaluation(report)
      else if (message.type === 'reward.failed') view.rewardFailed(message)
      else if (message.type === 'alarm.raised') view.alarm(message)
      else if (message.type === 'control.obeyed') view.order(message)
      else if (message.type === 'record.refused') view.refused(message)
      else if (message.type === 'stage.changed') view.stage(message)
      else if (message.type === 'stage.progressed') view.progress(message)
      view.tick(state)
    }
    const stop = await watchRun(run.journal, show, reportUnfollowed)
    // A pause that was ordered before this process began still holds.
    if (order?.order === 'pause') view.order(order)
    const sampling = setInterval(() => usage.sample(), sampleMs)
    const ended = await Promise.race([run.finished, signals.stopped, lost]).finally(() => clearInterval(sampling))
    const used = usage.split()
    await stop()
    await run.close()
    const seconds = (systemEffects.elapsed() - begun) / 1000
    const [outcome, reason] = typeof ended === 'string' ? ['stopped', ended] : [ended.outcome, ended.reason]
    const runSeconds = startedAt === undefined ? seconds : (systemEffects.now() - startedAt) / 1000
    view.end(summaryOf(state, id, outcome, reason, seconds), used, runSeconds)
    if (typeof ended === 'string') return signals.exitCode()
    return ended.outcome === 'done' ? 0 : 1
  } finally {
    signals.release()
    view.close()
    endDashboard?.()
    metrics?.close()
    await run?.close() // the run is already closed, unless something failed
    await endTrackers?.()
    await hold?.release()
    await context.bus.close()
  }
}
