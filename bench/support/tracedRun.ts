/**
 * Starts a run whose rollouts follow traces (traces.ts): real engine, bus, actors, renderer (and trainer, when it
 * learns); no tool runs.
 *
 * in   fields of the quickstart to set, traces, a bus        out  the run, its engine, and a gate before each step
 * Invariant: every step requests the same problems and makes turns of the same lengths, on every bus.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startRun } from '../../actors/run/root'
import type { Run } from '../../actors/run/run'
import type { Engine } from '../../backends/engines/engine'
import { type LocalEngine, startLocalEngine } from '../../backends/engines/local/local'
import type { Recipe, RecipeConfig } from '../../config'
import { type EngineId, type RunId, runId } from '../../messages/ids'
import { loadRecipe } from '../../recipes/load/loadRecipe'
import { openFileBlobs } from '../../runtime/bus/blobs'
import { openBus } from '../../runtime/bus/open'
import { systemEffects } from '../../runtime/effects'
import { createLog } from '../../runtime/log'
import { runDirectory } from '../../runtime/runDirectory'
import { pacedBus } from './pacedBus'
import { tracedEngine } from './tracedEngine'
import { delayedTool, indexOf, type Trace, tracedTool, tracedTruth, wordsOf } from './traces'

export interface TracedRunOptions {
  /** Address of the bus; `lmdb:` makes a new log in a temporary directory. */
  readonly bus: string
  /** `--set` overrides of the quickstart's fields. */
  readonly set: readonly string[]
  readonly traces: readonly Trace[]
  readonly learns: boolean
  /** Number of words before each problem, which lengthen the prompt. Default 0. */
  readonly promptWords?: number
}

export interface TracedRun<E extends Engine = LocalEngine> {
  readonly run: Run
  /** Name of the run. */
  readonly name: RunId
  /** Directory of runs that holds it, if its log is on lmdb. */
  readonly directory: string
  readonly config: RecipeConfig
  /** The real engine, without the wrapper that follows the traces. */
  readonly engine: E
  readonly nextDraw: () => Promise<() => void>
  close(): Promise<void>
}

type StartEngine<E extends Engine> = (id: EngineId, modelDirectory: string, config: RecipeConfig) => Promise<E>

/** Starts a traced run on a local engine in its own process, with the recipe's settings. */
export const startTracedRun = (options: TracedRunOptions): Promise<TracedRun> =>
  startTracedRunOn(options, (id, modelDirectory, { engine, limits: { contextTokens } }) =>
    startLocalEngine({ id, modelDirectory, ...engine, contextTokens, version: -1, log: benchLog() }),
  )

const benchLog = () => createLog('bench', { level: process.env.TROUPE_LOG ?? 'warn' })

export async function startTracedRunOn<E extends Engine>(
  options: TracedRunOptions,
  startEngine: StartEngine<E>,
): Promise<TracedRun<E>> {
  const { recipe, config: resolved } = loadRecipe('quickstart', [
    'evaluation.problems=0',
    'selection.refillShare=0',
    ...options.set,
  ])
  const { coldStart: _, ...config } = resolved.value
  const { groupSize, groupsPerStep } = config.rollout
  const directory = mkdtempSync(join(process.env.TROUPE_BENCH_DIR ?? tmpdir(), 'troupe-bench-run-'))
  const name = runId(`bench-${options.bus.split(':')[0]}`)
  const { log: logDirectory } = runDirectory(directory, name)
  if (options.bus === 'lmdb:') mkdirSync(logDirectory, { recursive: true })
  const address = options.bus === 'lmdb:' ? `lmdb:${logDirectory}` : options.bus
  const bus = await openBus(address, { mode: 'write' })
  const paced = pacedBus(bus)
  const log = benchLog()
  let up: (engine: E) => void = () => {}
  const engineUp = new Promise<E>(resolve => {
    up = resolve
  })
  const clean = async () => {
    await bus.close()
    rmSync(directory, { recursive: true, force: true })
  }
  try {
    const run = await startRun({
      run: name,
      recipe: repeating(recipe, groupsPerStep, options.promptWords ?? 0),
      config,
      directory,
      modelDirectory: join(directory, 'model'),
      bus: paced.bus,
      blobs: await openFileBlobs(join(directory, 'blobs')),
      resume: false,
      learns: options.learns,
      acceptCode: false,
      fx: systemEffects,
      log,
      versions: {},
      async startEngine(id, modelDirectory) {
        const engine = await startEngine(id, modelDirectory, config)
        up(engine)
        return tracedEngine(engine, trajectory => options.traces[indexOf(trajectory, groupSize)]!)
      },
      tools: new Map([[tracedTool, delayedTool]]),
    })
    run.finished.catch(thrown => log.error({ err: thrown }, 'the run failed'))
    const close = () => {
      paced.openForGood()
      return run.close().finally(clean)
    }
    return { run, name, directory, config, engine: await engineUp, nextDraw: paced.nextDraw, close }
  } catch (thrown) {
    await clean()
    throw thrown
  }
}

/** The recipe with the same `count` problems in every step; their answer is the one in the traces. */
function repeating(recipe: Recipe, count: number, promptWords: number): Recipe {
  return {
    ...recipe,
    async tasks(config) {
      const source = await recipe.tasks(config)
      const train = (index: number) => {
        const task = source.train(index % count)
        if (promptWords === 0) return { ...task, truth: tracedTruth }
        const [first, ...others] = task.messages
        const content = `${wordsOf(promptWords, index % count)}. ${first!.content}`
        return { ...task, truth: tracedTruth, messages: [{ ...first!, content }, ...others] }
      }
      return { ...source, train }
    },
  }
}
