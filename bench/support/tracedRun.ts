/**
 * A run whose rollouts follow traces: real engine, bus, actors, renderer (and trainer, where it learns); no tool runs.
 *
 * in   a recipe's numbers, traces, a bus        out  the run, its engine, and a gate before each step
 * Invariant: step after step asks for the same problems and does the same turns, on whatever bus.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startRun } from '../../actors/root'
import type { Run } from '../../actors/run'
import { loadRecipe } from '../../cli/recipes'
import { runId } from '../../messages/ids'
import { openFileBlobs } from '../../runtime/bus/blobs'
import { openBus } from '../../runtime/bus/open'
import { systemEffects } from '../../runtime/effects'
import { type LocalEngine, startLocalEngine } from '../../runtime/engines/local'
import { createLog } from '../../runtime/log'
import type { Recipe, RecipeConfig } from '../../runtime/recipe'
import { pacedBus } from './pacedBus'
import { tracedEngine } from './tracedEngine'
import { delayedTool, indexOf, type Trace, tracedTool, tracedTruth } from './traces'

export interface TracedRunOptions {
  /** An address; `lmdb:` for a log in a directory of its own. */
  readonly bus: string
  /** `--set` assignments to the quickstart. */
  readonly set: readonly string[]
  readonly traces: readonly Trace[]
  readonly learns: boolean
}

export interface TracedRun {
  readonly run: Run
  readonly config: RecipeConfig
  /** The engine without the traces. */
  readonly engine: LocalEngine
  readonly nextDraw: () => Promise<() => void>
  close(): Promise<void>
}

export async function startTracedRun(options: TracedRunOptions): Promise<TracedRun> {
  const { recipe, config: resolved } = loadRecipe('quickstart', [
    'evaluation.problems=0',
    'selection.refillShare=0',
    ...options.set,
  ])
  const { coldStart: _, ...config } = resolved.value
  const { groupSize, groupsPerStep } = config.rollout
  const directory = mkdtempSync(join(process.env.TROUPE_BENCH_DIR ?? tmpdir(), 'troupe-bench-run-'))
  const address = options.bus === 'lmdb:' ? `lmdb:${join(directory, 'log')}` : options.bus
  const bus = await openBus(address, { mode: 'write' })
  const paced = pacedBus(bus)
  const log = createLog('bench', { level: process.env.TROUPE_LOG ?? 'warn' })
  let up: (engine: LocalEngine) => void = () => {}
  const engineUp = new Promise<LocalEngine>(resolve => {
    up = resolve
  })
  const clean = async () => {
    await bus.close()
    rmSync(directory, { recursive: true, force: true })
  }
  try {
    const run = await startRun({
      run: runId(`bench-${options.bus.split(':')[0]}`),
      recipe: repeating(recipe, groupsPerStep),
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
        const { contextTokens } = config.limits
        const engine = await startLocalEngine({ id, modelDirectory, ...config.engine, contextTokens, version: -1, log })
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
    return { run, config, engine: await engineUp, nextDraw: paced.nextDraw, close }
  } catch (thrown) {
    await clean()
    throw thrown
  }
}

/** The recipe with the same `count` problems in every step, whose answer the traces know. */
function repeating(recipe: Recipe, count: number): Recipe {
  return {
    ...recipe,
    async tasks(config) {
      const source = await recipe.tasks(config)
      return { ...source, train: index => ({ ...source.train(index % count), truth: tracedTruth }) }
    },
  }
}
