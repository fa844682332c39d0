/**
 * The learner's port to the trainer.
 *
 * in   requests to make the cold start, to train a step, to remove a checkpoint
 * out  cold start: stage.progressed and stage.changed (if there are demonstrations), checkpoint.saved,
 *      weights.published
 *      step: weights.published, step.completed; or step.rejected; every `checkpointEvery` steps checkpoint.saved, once
 *      the checkpoint is complete on disk, while training continues; that of step `lastStep` is awaited
 *      in the middle of a long cold start or step: checkpoint.saved with `updates`
 *      a checkpoint that is no longer kept: checkpoint.removed
 * Invariant: a step is computed from the state that the earlier steps left (trainerSteps.ts). `step.completed` is
 * written after the weights are durable.
 * The third failure in a row of one kind of call (step, save, …) is final: the run ends with it. A busy trainer and a
 * full disk do not count.
 */

import { join } from 'node:path'
import { type SftData, writeExamples } from '../../backends/trainer/exampleFiles'
import type { GrpoOptions, SftExample, SftOptions, Trainer } from '../../backends/trainer/trainer'
import type { CallLabel, Fact, Metrics } from '../../messages/facts'
import { policyVersion } from '../../messages/ids'
import { type DiskPause, diskPause } from '../../runtime/disk/diskPause'
import type { Decision } from '../../runtime/host/behaviour'
import type { Port } from '../../runtime/host/host'
import type { Journal } from '../../runtime/journal/journal'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { type CheckpointsOptions, checkpoints, type Reached } from './checkpoints'
import { recordProgress } from './coldStartProgress'
import type { LearnerRequest } from './learner'
import { goOnOrBeginAnew, recordPartials } from './partials'
import type { KeptCheckpoint } from './retention'
import { callKinds, trainerCalls } from './trainerCalls'
import { trainerSteps } from './trainerSteps'
import { type WrittenSizes, writeRoom } from './writeRoom'

export interface LearnerPortOptions extends Omit<CheckpointsOptions, 'append' | 'attempt' | 'room'> {
  /** Makes writes wait while the disk is full. Default: a pause that only this port uses. */
  readonly disk?: DiskPause
  /**
   * Returns the sizes of weights and checkpoints, estimated from the model's number of parameters; undefined until that
   * is known.
   */
  readonly sizes?: () => WrittenSizes | undefined
  /** Resolves with the trainer; starts it again first if its process was lost. `signal` ends the wait for it. */
  readonly trainer: (signal: AbortSignal) => Promise<Trainer>
  /**
   * True if the trainer and the engines use the same GPUs in turn: the trainer wakes before a step and sleeps again
   * before the step's weights are published, which wakes the engines. Default: false.
   */
  readonly takesTurns?: boolean
  readonly journal: Journal
  readonly grpo: GrpoOptions
  /** Labels of agents' calls that are trained on. Default: all but `aux`. */
  readonly trains?: readonly CallLabel[]
  readonly checkpointEvery: number
  /** Optimizer updates between two checkpoints in the middle of a step. Default: none is written. */
  readonly innerCheckpointEvery?: number
  /**
   * Number of the run's last step. Its checkpoint, if it has one, is awaited, since the run ends after it. Default: no
   * step's checkpoint is awaited.
   */
  readonly lastStep?: number
  /**
   * Cold start: demonstrations (conversations to imitate) as token ids, and how to train on them. Without it, version 0
   * is the unchanged initial model.
   */
  readonly coldStart?: {
    readonly options: SftOptions
    readonly examples: () => AsyncIterable<SftExample>
    /** Optimizer updates between two checkpoints in the middle of the cold start. Default: none is written. */
    readonly checkpointEvery?: number
  }
  /**
   * Resolves with true if this process may write for its role; if not, the facts that this port appends itself
   * (checkpoint.saved, stage.progressed) are dropped. Default: true.
   */
  readonly mayAct?: () => Promise<boolean>
  /**
   * Called once, with a function whose promise resolves once the checkpoint that is written beside training, if there
   * is one, has ended.
   */
  readonly onWriting?: (ended: () => Promise<void>) => void
}

type ColdStartRequest = Extract<LearnerRequest, { kind: 'cold-start' }>
type TrainRequest = Extract<LearnerRequest, { kind: 'train' }>
type RemoveRequest = Extract<LearnerRequest, { kind: 'remove-checkpoint' }>

export function learnerKey(request: LearnerRequest): string {
  switch (request.kind) {
    case 'cold-start':
      return 'cold-start'
    case 'train':
      return `train ${request.batch.started.step}`
    case 'remove-checkpoint':
      return `remove ${request.checkpoint.name}`
  }
}

export function learnerPort(options: LearnerPortOptions): Port<LearnerRequest> {
  const { journal, fx, log, mayAct = async () => true } = options
  const calls = trainerCalls()
  const append = async (fact: Fact) => {
    if (await mayAct()) await journal.append([fact])
  }
  const { disk = diskPause({ fx, log }), directory, sizes } = options
  const room = writeRoom({ disk, directory, sizes })
  const written = checkpoints({
    ...options,
    room,
    attempt: (kind, call) => calls.attempt(callKinds[kind], call),
    // A checkpoint is often complete while the next step is trained, so its fact cannot wait for that step's answer.
    append,
  })
  const steps = trainerSteps({
    ...options,
    innerCheckpointEvery: options.innerCheckpointEvery ?? 0,
    written,
    calls,
    append,
  })
  /**
   * Functions that end the waits of removal requests whose checkpoint could not be removed; called when a train request
   * ends.
   */
  const notRemoved: (() => void)[] = []
  /** The demonstrations on disk, once they are rendered. */
  let demonstrations: SftData | undefined
  options.onWriting?.(written.ended)

  async function coldStart(trainer: Trainer, request: ColdStartRequest): Promise<Decision> {
    const { epoch } = request
    const facts: Fact[] = []
    if (options.coldStart !== undefined) {
      const { examples } = options.coldStart
      demonstrations ??= await room.attempt('demonstrations', () =>
        writeExamples(join(directory, 'demonstrations'), examples()),
      )
      const metrics = await fineTune(trainer, demonstrations, options.coldStart, request)
      const reason = `supervised on ${demonstrations.examples} demonstrations, loss ${(metrics.loss ?? Number.NaN).toFixed(4)}`
      facts.push({ type: 'stage.changed', at: fx.now(), stage: 'cold-start', step: 0, reason, epoch })
    }
    const reached = { step: 0, version: policyVersion(0), epoch }
    const { published, weights, digest } = await written.publish(trainer, reached, [])
    facts.push(await written.save(trainer, { ...reached, weights, digest }), published)
    steps.holds(trainer, 0)
    return { facts, commands: [] }
  }

  /** Fine-tunes in a cold start: from its beginning, or from the newest checkpoint saved in the middle of it. */
  async function fineTune(
    trainer: Trainer,
    data: SftData,
    { options: sft, checkpointEvery: every = 0 }: NonNullable<LearnerPortOptions['coldStart']>,
    { epoch, resume }: ColdStartRequest,
  ): Promise<Metrics> {
    const of = { prefix: written.partialPrefix(0, epoch), every, step: 0, version: policyVersion(0), epoch }
    const { on, recorded } = recordPartials(of, { append, fx, progressed: () => calls.progressed(callKinds.sft) })
    const progress = recordProgress({ epoch, append, fx })
    const tune = (from?: KeptCheckpoint) =>
      calls.attempt(callKinds.sft, () => trainer.sft(data, sft, progress.report, { ...on, ...written.resumeOf(from) }))
    const metrics = await goOnOrBeginAnew('the cold start', resume, tune, log)
    await Promise.all([recorded(), progress.recorded()])
    return metrics
  }

  async function train(trainer: Trainer, request: TrainRequest, signal: AbortSignal): Promise<Decision> {
    const { epoch } = request
    const { step } = request.batch.started
    // Waits for disk space before the step is computed: if it waited afterwards, a crash would lose the step's result.
    await rejectOnAbort(room.forStep(hasCheckpoint(step)), signal)
    const computed = await steps.compute(trainer, request)
    if ('fault' in computed) {
      const { message, hint } = computed.fault
      const reason = hint === undefined ? message : `${message}; ${hint}`
      const rejected: Fact = { type: 'step.rejected', at: fx.now(), step, epoch, reason, metrics: {} }
      return { facts: [rejected], commands: [] }
    }
    const reached = { step, version: policyVersion(request.version + 1), epoch }
    const facts = await leave(trainer, reached, request.saved)
    const [{ version }, metrics] = [reached, withoutMemory(computed.metrics)]
    return { facts: [...facts, { type: 'step.completed', at: fx.now(), step, epoch, version, metrics }], commands: [] }
  }

  const hasCheckpoint = (step: number) => step % options.checkpointEvery === 0 || written.isOwed()

  /**
   * Publishes the weights of a step, and begins its checkpoint if it has one. Waits for the checkpoint of `lastStep`.
   */
  async function leave(trainer: Trainer, reached: Reached, saved: readonly KeptCheckpoint[]): Promise<Fact[]> {
    const { published, weights, digest } = await written.publish(trainer, reached, saved)
    if (!hasCheckpoint(reached.step)) return [published]
    const state = { ...reached, weights, digest }
    if (reached.step === options.lastStep) return [await written.save(trainer, state), published]
    await written.saveBeside(trainer, state)
    return [published]
  }

  /**
   * Removes a checkpoint. If that fails, logs a warning and resolves, without an answer, when the next train request
   * ends; the learner then requests the removal again.
   */
  async function remove(request: RemoveRequest, signal: AbortSignal): Promise<Decision | undefined> {
    const { checkpoint, epoch, version } = request
    const { step, name } = checkpoint
    try {
      await written.remove(checkpoint, version)
    } catch (err) {
      log.warn({ err, checkpoint: name }, 'a checkpoint could not be removed; it is tried again after the next step')
      const stepOver = new Promise<void>(resolve => notRemoved.push(resolve))
      await rejectOnAbort(stepOver, signal)
      return undefined
    }
    return { facts: [{ type: 'checkpoint.removed', at: fx.now(), step, name, epoch }], commands: [] }
  }

  /**
   * Runs `work` with the trainer. If trainer and engines take turns, wakes the trainer first and lets it sleep
   * afterwards. Throws if the work succeeded and the trainer still runs but cannot free its GPUs' memory: the engines
   * would wait for that memory for ever.
   */
  async function awake<T>(signal: AbortSignal, work: (trainer: Trainer) => Promise<T>): Promise<T> {
    const trainer = await rejectOnAbort(options.trainer(signal), signal)
    if (options.takesTurns !== true) return work(trainer)
    await rejectOnAbort(trainer.wake?.() ?? Promise.resolve(), signal)
    const failed = 'the trainer could not free its memory'
    const done = await work(trainer).catch(async thrown => {
      await trainer.sleep?.().catch(err => log.warn({ err }, failed))
      throw thrown
    })
    await trainer.sleep?.().catch(async err => {
      if (!(await isLost(trainer))) throw err
      log.warn({ err }, failed)
    })
    return done
  }

  // Stopping the run waits for a step that is being computed, whose result would otherwise be lost. It aborts a cold
  // start, and a step that still waits for the trainer or for disk space.
  return (request, signal) => {
    switch (request.kind) {
      case 'cold-start':
        return rejectOnAbort(
          awake(signal, trainer => coldStart(trainer, request)),
          signal,
        )
      case 'train':
        return awake(signal, trainer => train(trainer, request, signal)).finally(() => {
          for (const again of notRemoved.splice(0)) again()
        })
      case 'remove-checkpoint':
        return remove(request, signal)
    }
  }
}

/** True if the trainer's process has ended, which has freed its memory. */
const isLost = ({ lost }: Trainer): Promise<boolean> =>
  Promise.race([lost.then(() => true), new Promise<boolean>(resolve => setImmediate(resolve, false))])

/** Drops the memory use of the trainer process from the metrics, since it differs between two runs with one seed. */
const withoutMemory = ({ maxRssBytes: _, ...metrics }: Metrics): Metrics => metrics
