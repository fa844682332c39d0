/**
 * A whole run in one process whose time is the engines' steps: every behaviour and port of a training run over a bus in
 * memory, with engines and a trainer that a test can read.
 *
 * in   a plan, engines, what a training step takes        out  the run's log, and every batch as the trainer was given it
 * Invariant: the engines go on only when everything that follows from their last step is in the log, so that which rollout
 * ends first is decided by lengths and not by the machine. Facts are dated by steps: `at` is 1000 and the steps so far.
 */
import { coordinator } from '../../actors/coordinator'
import { type CurriculumPlan, curriculum } from '../../actors/curriculum'
import { fenced } from '../../actors/fenced'
import { grouper } from '../../actors/grouper'
import { type Joined, joinEngine } from '../../actors/joinEngine'
import { learner } from '../../actors/learner'
import { oldestOpen, owner } from '../../actors/owner'
import { drawKey, drawPort } from '../../actors/ports/drawPort'
import { learnerKey, learnerPort } from '../../actors/ports/learnerPort'
import { renderKey, renderPort } from '../../actors/ports/renderPort'
import { type Tool, toolKey, toolPort } from '../../actors/ports/toolPort'
import { type Grader, verifierKey, verifierPort } from '../../actors/ports/verifierPort'
import { followedFeeds } from '../../actors/roles/followed'
import { scheduler } from '../../actors/scheduler'
import { toolExecutor } from '../../actors/toolExecutor'
import { verifier } from '../../actors/verifier'
import type { SelectionOptions } from '../../kernels'
import type { Fact, RolloutLimits } from '../../messages/facts'
import { executorId, runId, taskId } from '../../messages/ids'
import type { Bus } from '../../runtime/bus'
import { openMemoryBus } from '../../runtime/bus/memory'
import { manualEffects } from '../../runtime/effects'
import { type Embedded, openTroupe } from '../../runtime/embed'
import { createLog } from '../../runtime/log'
import type { Renderer } from '../../runtime/renderer'
import type { Trainer, TrainSequence } from '../../runtime/trainer'
import { everything } from './audit'
import { toolName } from './facts'
import type { SteppedEngine } from './steppedEngines'

export interface SteppedRunOptions {
  readonly engines: readonly SteppedEngine[]
  readonly plan: Pick<CurriculumPlan, 'steps' | 'groupsPerStep' | 'refillShare' | 'maxStaleness'>
  readonly groupSize: number
  readonly selection: Omit<SelectionOptions, 'seed'>
  readonly limits: RolloutLimits
  readonly partitions: number
  readonly grader: Grader
  /** Steps of the engines that one of the trainer takes. */
  readonly trainingSteps: number
  /** Called after each step, when all that follows from it is in the log. */
  readonly onStep?: (n: number, run: SteppedRun) => Promise<void>
}

interface SteppedRun {
  readonly troupe: Embedded
  /** By engine, as joined last. */
  readonly joined: ReadonlyMap<SteppedEngine, Joined>
  /** After it has left. */
  rejoin(engine: SteppedEngine): Promise<void>
  /** What the trainer was given, a batch a step. */
  readonly batches: (readonly TrainSequence[])[]
}

/** Steps without an end of the run after which it has stalled. */
const mostSteps = 100_000
/** Turns of the event loop without an append after which nothing more follows. */
const quietTurns = 30

/** Runs to the end; resolves with the facts of `topic` in the order of their partitions. */
export async function steppedRun(options: SteppedRunOptions) {
  const { engines, limits, grader } = options
  let appends = 0
  const inner = openMemoryBus()
  const bus: Bus = {
    ...inner,
    append(records) {
      appends++
      return inner.append(records)
    },
  }
  const faults: Error[] = []
  const log = createLog('stepped', { level: 'silent' })
  const fx = manualEffects(1000)
  const troupe = await openTroupe({
    ...{ bus, run: 'stepped', partitions: options.partitions, fx, log },
    onFailed: error => faults.push(error),
  })
  const { journal } = troupe
  let steps = 0
  const waiting: { readonly until: number; readonly resolve: () => void }[] = []
  const batches: (readonly TrainSequence[])[] = []
  const joined = new Map<SteppedEngine, Joined>()
  const join = async (engine: SteppedEngine) => void joined.set(engine, await joinEngine(troupe, engine))
  const run: SteppedRun = { troupe, joined, rejoin: join, batches }

  const trainer = {
    async step(sequences: readonly TrainSequence[]) {
      batches.push(sequences)
      await new Promise<void>(resolve => waiting.push({ until: steps + options.trainingSteps, resolve }))
      return { loss: 0.5 }
    },
    save: async () => ({ digest: 'd', bytes: 1 }),
    load: async () => {},
    reset: async () => {},
  } as unknown as Trainer

  await troupe.host({
    behaviour: scheduler('kv-headroom'),
    feeds: [
      { topic: 'runs', from: 'oldest' },
      { topic: 'trajectories', from: 'latest' },
      { topic: 'turns', from: 'latest' },
      { topic: 'telemetry', from: 'latest' },
    ],
  })
  for (const engine of engines) await join(engine)
  await troupe.host({
    behaviour: toolExecutor(),
    feeds: [{ topic: 'tool-calls', from: 'latest' }],
    perform: toolPort(new Map([[toolName, tool]]), executorId('x'), fx),
    keyOf: toolKey,
  })
  await troupe.host({
    behaviour: verifier(),
    feeds: [{ topic: 'verifications', from: 'latest' }],
    perform: verifierPort(new Map([['', grader]]), fx),
    keyOf: verifierKey,
  })
  await troupe.host({
    behaviour: owner(coordinator({ turnTimeoutMs: 1e9 }), grouper({ runSeed: 1, selection: options.selection })),
    feeds: [{ topic: 'trajectories', from: 'committed' }],
    owner: 'owner',
    perform: renderPort(renderer, fx),
    keyOf: renderKey,
    oldestOpen,
  })
  await journal.append([{ type: 'learner.claimed', at: fx.now(), owner: 'learner' }])
  const plan: CurriculumPlan = {
    ...{ run: runId('stepped'), maxRejectedSteps: 3, learns: true, evaluation: { problems: 0, every: 0 } },
    ...options.plan,
  }
  const sampling = { temperature: 1, topP: 1, topK: 0, minP: 0, stopTokens: [] }
  await troupe.host({
    behaviour: fenced(curriculum(plan)),
    feeds: followedFeeds,
    perform: drawPort(
      { train: index => taskOf(index), evaluation: index => taskOf(index), dropped: {} },
      renderer,
      {
        ...{ seed: 7, groupSize: options.groupSize, evaluationSamples: 1, limits, sampling, evaluationTemperature: 1 },
        ...{ deadlineMs: 1e9, tools: [toolName], shownTools: [], begins: async () => [] },
      },
      fx,
    ),
    keyOf: drawKey,
  })
  await troupe.host({
    behaviour: fenced(learner(plan)),
    feeds: followedFeeds,
    perform: learnerPort({
      ...{ trainer: async () => trainer, journal, directory: '/nowhere', grpo: {} as never },
      ...{ checkpointEvery: 1, keepVersions: 3, onColdStart: () => {}, fx, log },
    }),
    keyOf: learnerKey,
  })

  /** Until nothing is appended any more. */
  async function settle(): Promise<void> {
    for (let quiet = 0, last = -1; quiet < quietTurns; ) {
      await new Promise(resolve => setImmediate(resolve))
      quiet = appends === last ? quiet + 1 : 0
      last = appends
    }
  }
  const factsOf = async <T extends Fact['type']>(topic: 'trajectories' | 'runs' | 'learner', type: T) => {
    const found: Extract<Fact, { type: T }>[] = []
    for (let partition = 0; partition < (await journal.partitionsOf(topic)); partition++) {
      for (const { message } of await everything(journal, topic, partition)) {
        if (message.type === type) found.push(message as Extract<Fact, { type: T }>)
      }
    }
    return found
  }

  try {
    for (; (await factsOf('runs', 'run.finished')).length === 0; steps++) {
      if (faults.length > 0) throw faults[0]
      if (steps > mostSteps) throw new Error(`the run has not ended after ${steps} steps of its engines`)
      await settle()
      fx.advance(1)
      for (const engine of engines) engine.step()
      for (const one of waiting.filter(({ until }) => until <= steps)) {
        waiting.splice(waiting.indexOf(one), 1)
        one.resolve()
      }
      await options.onStep?.(steps, run)
    }
    await settle()
  } catch (thrown) {
    await troupe.close()
    await inner.close()
    throw thrown
  }
  return {
    ...run,
    factsOf,
    async close() {
      await troupe.close()
      await inner.close()
    },
  }
}

const taskOf = (index: number) => ({ id: taskId(`t${index}`), messages: [], truth: String(index), reward: '' })

const tool: Tool = async () => ({
  ...{ status: 'ok', exitCode: 0, signal: null, stdout: '4', stderr: '', wallMs: 0, cpuMs: 0 },
})

const renderer = {
  prompt: async () => ({ text: '', tokens: Int32Array.of(1, 2, 3) }),
  toolResponses: async () => ({ text: 'r', tokens: Int32Array.of(8, 9) }),
} as unknown as Renderer
