/**
 * The learner's port to the trainer.
 *
 * in   requests to make the cold start, to train a step, to remove a checkpoint
 * out  cold start: stage.changed (if there are demonstrations), checkpoint.saved, weights.published
 *      step: weights.published, step.completed; or step.rejected; every `checkpointEvery` steps checkpoint.saved, once
 *      the checkpoint is complete on disk, while training goes on; the run's last one is awaited
 *      a checkpoint that is no longer kept: checkpoint.removed
 * Invariant: before a step is trained, the trainer holds the state that the earlier steps left. If it lost that state
 * (a crash, a resume), it loads the newest checkpoint and repeats the recorded batches since; a loss that then differs
 * from the recorded one is logged. `step.completed` is written after the weights are durable.
 * The third failure in a row of one kind of call (step, save, …) is final: the run ends with it.
 */

import { basename, join } from 'node:path'
import { type SftData, writeExamples } from '../../backends/trainer/exampleFiles'
import type {
  GrpoOptions,
  SavedSft,
  SftExample,
  SftOptions,
  StageReset,
  Trainer,
  TrainSequence,
} from '../../backends/trainer/trainer'
import type { Fact, Metrics } from '../../messages/facts'
import { policyVersion } from '../../messages/ids'
import { asError, TroupeError } from '../../runtime/errors'
import type { Decision } from '../../runtime/host/behaviour'
import type { Port } from '../../runtime/host/host'
import type { Journal } from '../../runtime/journal/journal'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import { type CheckpointsOptions, checkpoints, type Reached } from './checkpoints'
import type { Batch, LearnerRequest } from './learner'
import type { KeptCheckpoint } from './retention'
import { batchFaults, callKinds, trainerCalls } from './trainerCalls'
import { factsOf, trainSequences } from './trainSequences'

export interface LearnerPortOptions extends Omit<CheckpointsOptions, 'append' | 'attempt'> {
  /** Resolves with the trainer; starts it again first if its process was lost. `signal` ends the wait for it. */
  readonly trainer: (signal: AbortSignal) => Promise<Trainer>
  /**
   * True if the trainer shares its GPUs with engines, which sleep while it works: it wakes before a step and sleeps
   * again before the step's weights are published, which wake the engines. Default: false.
   */
  readonly takesTurns?: boolean
  readonly journal: Journal
  readonly grpo: GrpoOptions
  readonly checkpointEvery: number
  /** Number of the run's last step. Its checkpoint is awaited, since the run ends after it. Default: none is awaited. */
  readonly lastStep?: number
  /**
   * Cold start: demonstrations (conversations to imitate) as token ids, and how to train on them. Without it, version 0
   * is the unchanged initial model.
   */
  readonly coldStart?: {
    readonly options: SftOptions
    readonly examples: () => AsyncIterable<SftExample>
    /** Updates between two checkpoints. Default: none is written. */
    readonly checkpointEvery?: number
  }
  readonly onColdStart: (done: number, loss: number) => void
  /** Resolves with true if this process may write for its role. Default: true. */
  readonly mayAct?: () => Promise<boolean>
  /** Called with a function that resolves when no checkpoint is being written. */
  readonly onWriting?: (ended: () => Promise<void>) => void
}

type ColdStartRequest = Extract<LearnerRequest, { kind: 'cold-start' }>
type TrainRequest = Extract<LearnerRequest, { kind: 'train' }>
type RemoveRequest = Extract<LearnerRequest, { kind: 'remove-checkpoint' }>

/** Codes of errors after which a cold start cannot go on from its checkpoint and begins anew. */
const cannotGoOn: ReadonlySet<string> = new Set([
  ...['trainer.other_examples', 'trainer.no_checkpoint', 'trainer.checkpoint_corrupt'],
])

/** Relative difference between a recomputed and a recorded loss above which a warning is logged. */
const recomputedTolerance = 1e-3

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
  /** The trainer, and the number of the step whose resulting state it holds. */
  let held: { readonly trainer: Trainer; readonly step: number } | undefined
  const append = async (fact: Fact) => {
    if (await mayAct()) await journal.append([fact])
  }
  const written = checkpoints({
    ...options,
    attempt: (kind, call) => calls.attempt(callKinds[kind], call),
    // A checkpoint is often complete while the next step is trained, so its fact cannot wait for that step's answer.
    append,
  })
  /** Ends the waits of the requests whose checkpoints could not be removed. */
  const notRemoved: (() => void)[] = []
  /** The demonstrations on disk, once they are rendered. */
  let demonstrations: SftData | undefined
  options.onWriting?.(written.ended)

  async function coldStart(trainer: Trainer, request: ColdStartRequest): Promise<Decision> {
    const { epoch } = request
    const facts: Fact[] = []
    if (options.coldStart !== undefined) {
      demonstrations ??= await writeExamples(join(options.directory, 'demonstrations'), options.coldStart.examples())
      const metrics = await fineTune(trainer, demonstrations, options.coldStart, request)
      const reason = `supervised on ${demonstrations.examples} demonstrations, loss ${(metrics.loss ?? Number.NaN).toFixed(4)}`
      facts.push({ type: 'stage.changed', at: fx.now(), stage: 'cold-start', step: 0, reason, epoch })
    }
    const reached = { step: 0, version: policyVersion(0), epoch }
    const { published, weights, digest } = await written.publish(trainer, reached, [])
    facts.push(await written.save(trainer, { ...reached, weights, digest }), published)
    held = { trainer, step: 0 }
    return { facts, commands: [] }
  }

  /** Fine-tunes from the beginning, or from the newest checkpoint that was saved on the way. */
  async function fineTune(
    trainer: Trainer,
    data: SftData,
    { options: sft, checkpointEvery: every = 0 }: NonNullable<LearnerPortOptions['coldStart']>,
    { epoch, resume }: ColdStartRequest,
  ): Promise<Metrics> {
    const said: Promise<void>[] = []
    const onSaved = ({ directory, updates, manifest, bytes }: SavedSft) => {
      const fact = {
        step: 0,
        version: policyVersion(0),
        name: basename(directory),
        digest: '',
        manifest,
        bytes,
        updates,
      }
      said.push(append({ type: 'checkpoint.saved', at: fx.now(), ...fact, epoch }))
    }
    const on = { prefix: written.sftPrefix(epoch), every, onSaved }
    const tune = (from?: string) =>
      calls.attempt(callKinds.sft, () =>
        trainer.sft(data, sft, options.onColdStart, { ...on, ...(from === undefined ? {} : { resume: from }) }),
      )
    const metrics = await tune(resume && written.pathOf(resume.name)).catch(thrown => {
      if (resume === undefined || !cannotGoOn.has(asError(thrown) instanceof TroupeError ? thrown.code : ''))
        throw thrown
      log.warn({ err: thrown }, 'the cold start begins anew: it cannot go on from its checkpoint')
      return tune()
    })
    await Promise.all(said)
    return metrics
  }

  /** Reads the batch's sequences from the log, in the batch's order. */
  const sequencesOf = async (batch: Batch): Promise<TrainSequence[]> =>
    trainSequences(batch, await factsOf(journal, batch))

  async function restore(trainer: Trainer, request: TrainRequest): Promise<void> {
    const { started } = request.batch
    if (held?.trainer === trainer && held.step === started.step - 1) return
    await calls.attempt(callKinds.load, () => trainer.load(written.pathOf(request.checkpoint.name)))
    for (const batch of request.since) {
      await resetTrainer(trainer, batch.reset, options.grpo)
      if (batch.rejected) continue
      const sequences = await sequencesOf(batch)
      const metrics = await calls.attempt(callKinds.again, () => trainer.step(sequences, options.grpo))
      const recorded = batch.metrics?.loss ?? Number.NaN
      const difference = Math.abs((metrics.loss ?? Number.NaN) - recorded) / Math.max(1e-6, Math.abs(recorded))
      if (!(difference <= recomputedTolerance)) {
        log.warn(
          { step: batch.started.step, loss: metrics.loss, recorded },
          'the recomputed loss of a step differs from the recorded one',
        )
      }
    }
  }

  async function train(trainer: Trainer, request: TrainRequest): Promise<Decision> {
    const { epoch } = request
    const { step } = request.batch.started
    await restore(trainer, request)
    await written.retry(trainer, step - 1)
    const sequences = await sequencesOf(request.batch)
    // A stage that begins may ask for a reset. It is made here, because the newest checkpoint still holds the previous
    // stage's optimizer and reference model.
    await resetTrainer(trainer, request.batch.reset, options.grpo)
    let metrics: Metrics
    try {
      held = undefined
      metrics = withoutMemory(await calls.attempt(callKinds.step, () => trainer.step(sequences, options.grpo)))
    } catch (thrown) {
      const error = asError(thrown)
      if (!(error instanceof TroupeError) || !batchFaults.has(error.code)) throw error
      held = { trainer, step }
      const reason = error.hint === undefined ? error.message : `${error.message}; ${error.hint}`
      const rejected: Fact = { type: 'step.rejected', at: fx.now(), step, epoch, reason, metrics: {} }
      return { facts: [rejected], commands: [] }
    }
    const reached = { step, version: policyVersion(request.version + 1), epoch }
    const facts = await leave(trainer, reached, request.saved)
    held = { trainer, step }
    const { version } = reached
    return { facts: [...facts, { type: 'step.completed', at: fx.now(), step, epoch, version, metrics }], commands: [] }
  }

  /** Publishes the weights of a step and begins its checkpoint, if it has one. */
  async function leave(trainer: Trainer, reached: Reached, saved: readonly KeptCheckpoint[]): Promise<Fact[]> {
    const { published, weights, digest } = await written.publish(trainer, reached, saved)
    if (reached.step % options.checkpointEvery !== 0) return [published]
    const state = { ...reached, weights, digest }
    if (reached.step === options.lastStep) return [await written.save(trainer, state), published]
    await written.saveBeside(trainer, state)
    return [published]
  }

  /** Removes a checkpoint. If that fails, waits until the next step is over, and leaves it to a later request. */
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
   * Runs `work` while the trainer has the memory of its GPUs. Throws if the trainer lives and cannot free it afterwards:
   * the engines would wait for it for ever.
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

  // Stopping the run waits for a running step, whose result would otherwise be lost, but aborts a cold start, and a step
  // that still waits for the trainer.
  return (request, signal) => {
    switch (request.kind) {
      case 'cold-start':
        return rejectOnAbort(
          awake(signal, trainer => coldStart(trainer, request)),
          signal,
        )
      case 'train':
        return awake(signal, trainer => train(trainer, request)).finally(() => {
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

/**
 * Resets the trainer at the start of a stage. Without a KL term the policy is not copied as the new reference model,
 * since nothing would use it.
 */
export async function resetTrainer(trainer: Trainer, reset: StageReset | undefined, grpo: GrpoOptions): Promise<void> {
  if (reset === undefined) return
  const { optimizer } = reset
  const reference = reset.reference && grpo.klCoef > 0
  if (optimizer || reference) await trainer.reset({ optimizer, reference })
}

/** Drops the memory use of the trainer process from the metrics, since it differs between two runs with one seed. */
const withoutMemory = ({ maxRssBytes: _, ...metrics }: Metrics): Metrics => metrics
