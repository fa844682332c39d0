/**
 * A whole training run in one process whose clock counts the engines' steps: real behaviours and ports on a bus in
 * memory, with stepped engines (steppedEngines.ts), fixed tool answers, and a trainer that only records its batches.
 *
 * in   a plan, engines, the duration of a training step        out  the run's log; the trainer's batches
 * Invariant: the engines step only when everything that follows from their last step is in the log, so lengths decide
 * which rollout ends first, not the machine's speed. A fact's `at` is 1000 plus the number of steps so far.
 */
import { type Joined, joinEngine } from '../../actors/inference/joinEngine'
import { scheduler } from '../../actors/scheduling/scheduler'
import { toolExecutor } from '../../actors/tools/toolExecutor'
import { toolKey, toolPort } from '../../actors/tools/toolPort'
import type { Trainer, TrainSequence } from '../../backends/trainer/trainer'
import type { Fact } from '../../messages/facts'
import { executorId } from '../../messages/ids'
import type { Bus } from '../../runtime/bus'
import { openMemoryBus } from '../../runtime/bus/memory/memoryBus'
import { manualEffects } from '../../runtime/effects'
import { type Embedded, openTroupe } from '../../runtime/embed'
import { createLog } from '../../runtime/log'
import { everything } from './audit'
import { toolName } from './facts'
import { hostScripted, type ScriptedRunOptions, scriptedTool } from './scriptedRun'
import type { SteppedEngine } from './steppedEngines'

export interface SteppedRunOptions extends ScriptedRunOptions {
  readonly engines: readonly SteppedEngine[]
  readonly partitions: number
  /** Duration of one training step, in steps of the engines. */
  readonly trainingSteps: number
  /** Called after each step, when all that follows from it is in the log. */
  readonly onStep?: (n: number, run: SteppedRun) => Promise<void>
}

interface SteppedRun {
  readonly troupe: Embedded
  /** The engines' latest joins. */
  readonly joined: ReadonlyMap<SteppedEngine, Joined>
  /** Joins an engine again that has left. */
  rejoin(engine: SteppedEngine): Promise<void>
  /** Batches that the trainer got, one for each training step. */
  readonly batches: (readonly TrainSequence[])[]
}

/** Upper bound on the engines' steps; a run that has not ended by then throws. */
const mostSteps = 100_000
/** Number of turns of the event loop without an append after which the run counts as settled. */
const quietTurns = 30

/**
 * Runs to the end. The result's `factsOf` reads facts of a type, partition by partition; `close` ends the run's parts.
 */
export async function steppedRun(options: SteppedRunOptions) {
  const { engines } = options
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

  const trainer: Pick<Trainer, 'step'> = {
    async step(sequences) {
      batches.push(sequences)
      await new Promise<void>(resolve => waiting.push({ until: steps + options.trainingSteps, resolve }))
      return { loss: 0.5 }
    },
  }
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
    perform: toolPort(new Map([[toolName, scriptedTool]]), executorId('x'), fx),
    keyOf: toolKey,
  })
  await hostScripted(troupe, options, trainer)

  /** Waits until nothing is appended any more. */
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
