/**
 * The root: one run's supervision tree, wired. The only place, with cli/, where things are put together.
 *
 *   root ── engines (a process each) ── inference
 *        ├─ trainer (a process)      ── learner
 *        ├─ sandbox                  ── tool executor, verifier
 *        ├─ renderer (a process)     ── curriculum
 *        └─ scheduler, dispatcher, evaluator, an owner (coordinator + grouper) a partition
 *
 * Invariant: everything that it starts ends with it, or with this process, whichever is first. Answerers are up before
 * askers, so that what a refold asks again is heard.
 */
import { pathToFileURL } from 'node:url'
import type { Message } from '../messages'
import type { ChatMessage, RunFinished, WeightsPublished } from '../messages/facts'
import { type EngineId, engineId, executorId, policyVersion, type RunId } from '../messages/ids'
import type { BlobStore } from '../runtime/bus/blobs'
import type { Bus } from '../runtime/bus/bus'
import type { Effects } from '../runtime/effects'
import { type HostSpec, openTroupe } from '../runtime/embed'
import type { Engine } from '../runtime/engine'
import { startLocalEngine } from '../runtime/engines/local'
import type { Journal } from '../runtime/journal'
import type { Log } from '../runtime/log'
import type { MetricsRegistry } from '../runtime/metrics'
import type { Recipe, RecipeConfig } from '../runtime/recipe'
import type { Renderer } from '../runtime/renderer'
import { startRenderer } from '../runtime/rendererProcess'
import type { Trainer } from '../runtime/trainer'
import { startTrainer } from '../runtime/trainerProcess'
import { openSandbox, pythonTool } from '../sandbox'
import { announce, endOf } from './announce'
import { coordinator } from './coordinator'
import { curriculum } from './curriculum'
import { dispatcher } from './dispatcher'
import { evaluator } from './evaluator'
import { grouper } from './grouper'
import { type Joined, joinEngine } from './joinEngine'
import { joinExecutor } from './joinExecutor'
import { learner } from './learner'
import { lifeline } from './lifeline'
import { type ModelOnDisk, modelOf } from './model'
import { oldestOpen, owner } from './owner'
import { drawKey, drawPort } from './ports/drawPort'
import { graderSandbox } from './ports/graderSandbox'
import { learnerKey, learnerPort } from './ports/learnerPort'
import { mathGrader } from './ports/mathGrader'
import { pythonToolIn } from './ports/pythonTool'
import { renderKey, renderPort } from './ports/renderPort'
import type { Tool } from './ports/toolPort'
import { verifierKey, verifierPort } from './ports/verifierPort'
import { scheduler } from './scheduler'
import { verifier } from './verifier'

export interface RunOptions {
  readonly run: RunId
  readonly recipe: Recipe
  readonly config: RecipeConfig
  /** Of the run's files: model, checkpoints, weights. */
  readonly directory: string
  readonly modelDirectory: string
  readonly bus: Bus
  readonly blobs: BlobStore
  readonly resume: boolean
  /** false: rollouts are collected from the model as it is, and nothing is trained. */
  readonly learns: boolean
  readonly acceptCode: boolean
  readonly fx: Effects
  readonly log: Log
  readonly metrics?: MetricsRegistry
  readonly versions: Readonly<Record<string, string>>
  readonly onColdStart?: (done: number, loss: number) => void
  /** Engines and tools other than the recipe's: for embedding and benchmarks. */
  readonly startEngine?: (id: EngineId, modelDirectory: string) => Promise<Engine>
  readonly tools?: ReadonlyMap<string, Tool>
}

export interface Run {
  readonly journal: Journal
  /** The run's last fact. Rejects when the tree can go no further. */
  readonly finished: Promise<RunFinished>
  /** Ends gently: what runs is finished or recorded as far as it got, so that a resume goes on from there. */
  close(): Promise<void>
}

const partitions = 1
const maxRejectedSteps = 3
/** For those that follow every rollout and only act when a whole group, step or evaluation is over. */
const countersLingerMs = 20
/** Tool calls that run when a run is stopped have this long to end, so that their results are recorded. */
const toolDrainMs = 5000
const givenToolLanes = 1024

export async function startRun(options: RunOptions): Promise<Run> {
  const { config, recipe, run, fx, log } = options
  const closers: (() => Promise<void>)[] = []
  let fail: (error: Error) => void = () => {}
  const failed = new Promise<never>((_, reject) => {
    fail = reject
  })
  failed.catch(() => {}) // also seen through `finished`

  const close = async () => {
    for (const closer of closers.splice(0).reverse()) {
      await closer().catch(thrown => log.warn({ err: thrown }, 'a part did not close cleanly'))
    }
  }

  const metrics = options.metrics === undefined ? {} : { metrics: options.metrics }
  const { bus, blobs } = options
  const troupe = await openTroupe({ bus, blobs, run, partitions, fx, log, onFailed: fail, ...metrics })
  const { journal } = troupe
  closers.push(() => troupe.close())
  const host = async <S, I extends Message, R>(spec: HostSpec<S, I, R>): Promise<void> => {
    const started = await troupe.host(spec)
    closers.push(() => started.close())
  }

  try {
    const demonstrations = async () => (await recipe.demonstrations?.(config)) ?? []
    const model = await modelOf(config, options.modelDirectory, demonstrations)
    const renderer = await startRenderer({
      modelDirectory: model.directory,
      ...(model.template === undefined ? {} : { template: model.template }),
      log,
    })
    closers.push(() => renderer.close())
    const tokenizer = await renderer.describe()
    await announce(journal, { ...options, partitions, tokenizerDigest: tokenizer.digest })
    const finished = endOf(journal, fail, closers)

    // ---- what generates: processes of their own ----
    await host({
      behaviour: scheduler(config.scheduler.policy),
      feeds: [
        { topic: 'runs', from: 'oldest' },
        { topic: 'trajectories', from: 'latest' },
        { topic: 'turns', from: 'latest' },
        { topic: 'telemetry', from: 'latest' },
      ],
    })
    for (let k = 0; k < config.engine.count; k++) {
      const id = engineId(`local-${k}`)
      let joined: Joined | undefined
      const engine = lifeline<Engine>({
        name: id,
        start: () => (options.startEngine ?? localEngine(options))(id, model.directory),
        onUp: async up => {
          joined = await joinEngine(troupe, up)
        },
        onDown: async error => {
          log.warn({ engine: id, err: error }, 'an engine went down')
          await joined?.leave(error.message)
        },
        onFailed: fail,
        fx,
      })
      closers.push(async () => {
        await joined?.close()
        await engine.close()
      })
    }

    // ---- tools and rewards ----
    const lanes = config.tools.lanes === undefined ? {} : { lanes: config.tools.lanes }
    const sandbox = await openSandbox(lanes)
    closers.push(() => sandbox.close())
    await host({ behaviour: dispatcher(), feeds: [{ topic: 'tool-calls', from: 'latest' }] })
    const executor = await joinExecutor(troupe, {
      id: executorId('local-tools'),
      // Tools that were given share nothing that we know of: they run as they come.
      lanes: options.tools === undefined ? sandbox.lanes : givenToolLanes,
      tools: options.tools ?? new Map([[pythonTool.name, pythonToolIn(sandbox, config.tools.memoryMb)]]),
    })
    closers.push(() => executor.leave({ drainMs: toolDrainMs }))
    const forGrading = graderSandbox()
    closers.push(() => forGrading.close())
    const { place, timeoutMs } = config.reward
    await host({
      behaviour: verifier(),
      feeds: [{ topic: 'verifications', from: 'latest' }],
      perform: verifierPort(new Map([['math', mathGrader(forGrading, { place, timeoutMs })]]), fx),
      keyOf: verifierKey,
    })

    // ---- what asks ----
    await host({
      behaviour: owner(
        coordinator({ turnTimeoutMs: config.rollout.turnTimeoutMs }),
        grouper({ runSeed: config.seed, selection: config.selection }),
      ),
      feeds: [{ topic: 'trajectories', from: 'committed' }],
      owner: `${run}.${fx.unique()}`,
      perform: renderPort(renderer, fx),
      keyOf: renderKey,
      oldestOpen,
    })
    await host({
      behaviour: evaluator(),
      feeds: [
        { topic: 'trajectories', from: 'oldest' },
        { topic: 'runs', from: 'oldest' },
        { topic: 'learner', from: 'oldest' },
      ],
      lingerMs: countersLingerMs,
    })
    const { groupsPerStep, maxStaleness } = config.rollout
    const { refillShare } = config.selection
    const { steps } = config.train
    const source = await recipe.tasks(config)
    await host({
      behaviour: curriculum({
        run,
        steps,
        groupsPerStep,
        refillShare,
        maxStaleness,
        maxRejectedSteps,
        learns: options.learns,
        evaluation: config.evaluation,
      }),
      feeds: [
        { topic: 'trajectories', from: 'oldest' },
        { topic: 'runs', from: 'oldest' },
        { topic: 'learner', from: 'oldest' },
      ],
      lingerMs: countersLingerMs,
      perform: drawPort(source, renderer, drawOptions(options, tokenizer.stopTokens), fx),
      keyOf: drawKey,
    })
    if (options.learns) await startLearner(options, { journal, renderer, host, closers, fail, demonstrations, model })
    else if (!options.resume) await journal.append([publishedAsIs(model.directory, fx)])

    return {
      journal,
      finished: Promise.race([failed, finished]),
      close,
    }
  } catch (thrown) {
    await close()
    throw thrown
  }
}

interface Parts {
  readonly journal: Journal
  readonly renderer: Renderer
  readonly host: <S, I extends Message, R>(spec: HostSpec<S, I, R>) => Promise<void>
  readonly closers: (() => Promise<void>)[]
  readonly fail: (error: Error) => void
  readonly demonstrations: () => Promise<readonly (readonly ChatMessage[])[]>
  readonly model: ModelOnDisk
}

async function startLearner(options: RunOptions, parts: Parts): Promise<void> {
  const { config, fx, log, directory } = options
  const { journal, renderer, host, closers, fail, demonstrations, model } = parts
  const trainers = lifeline<Trainer>({
    name: 'trainer',
    start: () => startTrainer({ modelDirectory: model.directory, seed: config.seed, ...trainerOptions(config), log }),
    onFailed: fail,
    fx,
  })
  closers.push(() => trainers.close())

  const { checkpointEvery, keepVersions } = config.train
  const { coldStart } = config
  await host({
    behaviour: learner({
      groupsPerStep: config.rollout.groupsPerStep,
      refillShare: config.selection.refillShare,
      steps: config.train.steps,
    }),
    feeds: [
      { topic: 'trajectories', from: 'oldest' },
      { topic: 'runs', from: 'oldest' },
      { topic: 'learner', from: 'oldest' },
    ],
    lingerMs: countersLingerMs,
    perform: learnerPort({
      trainer: () => trainers.current(),
      journal,
      directory,
      grpo: { ...config.train, temperature: config.rollout.sampling.temperature },
      checkpointEvery,
      keepVersions,
      onColdStart: options.onColdStart ?? (() => {}),
      fx,
      log,
      ...(coldStart === undefined
        ? {}
        : {
            coldStart: {
              options: { ...coldStart, seed: config.seed },
              examples: async () => renderer.conversations(await demonstrations(), shownTools(options)),
            },
          }),
    }),
    keyOf: learnerKey,
  })
}

/** The model as it is, under version 0. */
function publishedAsIs(directory: string, fx: Effects): WeightsPublished {
  const url = pathToFileURL(directory).href
  return { type: 'weights.published', at: fx.now(), version: policyVersion(0), step: 0, url, digest: '', bytes: 0 }
}

const shownTools = ({ config, recipe }: RunOptions) => (config.tools.inPrompt ? recipe.tools : [])

function drawOptions(options: RunOptions, stopTokens: readonly number[]) {
  const { config, recipe } = options
  return {
    seed: config.seed,
    groupSize: config.rollout.groupSize,
    evaluationSamples: config.evaluation.samples,
    limits: config.limits,
    sampling: { ...config.rollout.sampling, stopTokens },
    evaluationTemperature: config.evaluation.temperature,
    deadlineMs: config.rollout.deadlineMs,
    tools: recipe.tools.map(t => t.name),
    shownTools: shownTools(options),
  }
}

const localEngine =
  ({ config, log }: RunOptions) =>
  (id: EngineId, modelDirectory: string): Promise<Engine> => {
    const { contextTokens } = config.limits
    return startLocalEngine({ id, modelDirectory, ...config.engine, contextTokens, version: -1, log })
  }

const trainerOptions = ({ train: { device, dtype, threads } }: RecipeConfig) => ({ device, dtype, threads })
