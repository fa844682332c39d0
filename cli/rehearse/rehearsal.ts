/**
 * Runs a rehearsal: all actors of the run in this process, with simulated engines on the rehearsal's clock.
 *
 * in   the rehearsed recipe, an engine model, the clock's highest speed, the most tokens of a sequence that are trained
 * out  what happened, how long it took, memory and bytes
 * Invariant: everything between the engines' tokens and the trainer's sequences is what a run has: bus, journal,
 * scheduler, coordinators, dispatcher, verifier, curriculum, learner, checkpoints; only most tool calls are simulated
 * (tools.ts). When it returns, the processes that it started have ended.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startRun } from '../../actors/run/root'
import { simulatedEngine } from '../../backends/engines/simulated/simulated'
import { startRenderer } from '../../backends/renderer/rendererProcess'
import { startTrainer } from '../../backends/trainer/trainerProcess'
import { longestContext, type RecipeConfig, recipeSchema } from '../../config'
import type { EngineModel } from '../../kernels'
import type { Fact } from '../../messages/facts'
import { runId } from '../../messages/ids'
import { watchRun } from '../../replay/log/watchRun'
import { openFileBlobs } from '../../runtime/bus/blobs'
import type { Bus } from '../../runtime/bus/bus'
import { openBus } from '../../runtime/bus/open'
import { collectedVersions } from '../../runtime/collectedVersions'
import { createLog } from '../../runtime/log'
import { parseConfig } from '../../runtime/settings/resolveConfig'
import { openSandbox, type Sandbox } from '../../sandbox'
import { runEnd } from '../io/runEnd'
import { stopSignals } from '../io/signals'
import { reportUnfollowed } from '../io/terminal'
import { watchBacklog } from './backlog'
import { cappedTrainer, type TrainedTokens } from './cappedTrainer'
import { type ClockFigures, rehearsalClock } from './clock'
import { bytesUnder, countedBus, type TopicBytes } from './logBytes'
import { type MemoryPeak, watchMemory } from './memory'
import { type Refolded, refold } from './refold'
import type { Rehearsed } from './rehearsed'
import { openScript, type Script } from './script'
import { type Tallied, tallyRehearsal } from './tally'
import { rehearsalTools } from './tools'

export interface RehearsalOptions {
  readonly rehearsed: Rehearsed
  readonly model: EngineModel
  readonly speed: number
  readonly trainerTokens: number
  /** Directory of the log, the model, checkpoints and weights. */
  readonly directory: string
  readonly onProgress: (tallied: Tallied, clock: ClockFigures) => void
}

export interface Rehearsal {
  readonly outcome: string
  readonly reason: string
  readonly tallied: Tallied
  readonly clock: ClockFigures
  readonly backlog: {
    readonly deepest: { readonly actor: string; readonly messages: number }
    readonly longestWait: { readonly actor: string; readonly seconds: number }
  }
  readonly memory: readonly MemoryPeak[]
  readonly log: { readonly fileBytes: number; readonly blobBytes: number; readonly topics: readonly TopicBytes[] }
  readonly refold: Refolded
  readonly trained: TrainedTokens
  readonly toolCalls: { readonly simulated: number; readonly real: number }
  readonly seconds: number
}

/** Real time after which a rehearsal that has not ended is stopped and counts as failed. */
const deadlineMs = 3_600_000
const progressMs = 10_000
const sandboxLanes = 2

export async function rehearse(options: RehearsalOptions): Promise<Rehearsal> {
  const { rehearsed, model, speed, trainerTokens, directory, onProgress } = options
  const config = parseConfig(recipeSchema, rehearsed.config, 'the rehearsed recipe')
  const places = { log: join(directory, 'log'), blobs: join(directory, 'blobs'), files: join(directory, 'files') }
  for (const place of Object.values(places)) mkdirSync(place, { recursive: true })
  const memory = watchMemory()
  const backlog = watchBacklog()
  const tally = tallyRehearsal(config.rollout.groupsPerStep)
  const trained: TrainedTokens = { sequences: 0, assembled: 0, given: 0 }
  const log = createLog('troupe', { level: process.env.TROUPE_LOG ?? 'warn' })
  const signals = stopSignals()
  const begun = performance.now()
  const clock = rehearsalClock({ speed, waitMs: backlog.waitMs })
  const timers: NodeJS.Timeout[] = []
  let script: Promise<Script> | undefined
  let sandbox: Sandbox | undefined
  let opened: Bus | undefined
  let run: Awaited<ReturnType<typeof startRun>> | undefined
  try {
    sandbox = await openSandbox({ lanes: sandboxLanes })
    opened = await openBus(`lmdb:${places.log}`)
    const counted = countedBus(opened)
    const blobs = await openFileBlobs(places.blobs)
    const { tools, calls } = rehearsalTools(sandbox, clock.after)
    run = await startRun({
      ...{ run: runId('rehearsal'), recipe: rehearsed.recipe, config, directory: places.files, tools },
      ...{ modelDirectory: join(places.files, 'model'), bus: counted.bus, blobs, metrics: backlog.metrics },
      ...{ resume: false, learns: true, acceptCode: false, fx: clock, log, versions: collectedVersions() },
      async startEngine(id, modelDirectory) {
        script ??= scriptIn(modelDirectory, config)
        const { draw, decode } = await script
        return simulatedEngine({
          ...{ id, model, contextTokens: longestContext(config), updateMs: config.engine.updateMs, fx: clock, draw },
          vocabulary: vocabularyOf(config),
          priority: config.scheduler.policy === 'kv-headroom',
          decode: async tokens => decode(tokens),
        })
      },
      startTrainer: async given => cappedTrainer(await startTrainer(given), trainerTokens, trained),
    })
    const stop = await watchRun(run.journal, message => tally.take(message as Fact), reportUnfollowed)
    timers.push(setInterval(() => onProgress(tally.result(), clock.figures()), progressMs))
    const ended = await runEnd(run.finished, signals, deadlineMs, 'the rehearsal')
    await stop()
    const figures = clock.figures()
    await run.close()
    const peaks = memory.peaks()
    return {
      ...{ ...ended, tallied: tally.result(), clock: figures, memory: peaks, trained, toolCalls: calls },
      backlog: { deepest: backlog.deepest, longestWait: backlog.longestWait },
      log: { fileBytes: bytesUnder(places.log), blobBytes: bytesUnder(places.blobs), topics: counted.counts() },
      refold: await refold(run.journal, config),
      seconds: (performance.now() - begun) / 1000,
    }
  } finally {
    for (const timer of timers) clearTimeout(timer)
    signals.release()
    await run?.close()
    clock.close()
    memory.close()
    await sandbox?.close()
    await opened?.close()
  }
}

/** Writes the engine model into the rehearsal's directory, for the recipe's `engine.modelFile`. */
export function writeEngineModel(file: string, model: EngineModel): void {
  writeFileSync(file, `${JSON.stringify(model, null, 2)}\n`)
}

const vocabularyOf = ({ model }: RecipeConfig): number => (model.from === 'random' ? model.vocabulary : 0)

async function scriptIn(modelDirectory: string, config: RecipeConfig): Promise<Script> {
  const { responseTokens, turns } = config.limits
  const renderer = await startRenderer({ modelDirectory })
  try {
    const vocabulary = vocabularyOf(config)
    const { groupSize } = config.rollout
    return await openScript(renderer, { responseTokens, turns, groupSize, vocabulary, place: config.reward.place })
  } finally {
    await renderer.close()
  }
}
