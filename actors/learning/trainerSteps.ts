/**
 * Computes a step in the trainer, from whatever state the trainer holds.
 *
 * in   the trainer, a request to train        out  the step's metrics, or the fault of its batch
 * Invariant: a step is computed on the state that the earlier steps left. A trainer that lost that state (a crash, a
 * resume) loads the newest checkpoint: one of a whole step, or a later one in the middle of a step if it is usable. It
 * then computes the recorded batches since that checkpoint again; if a step's loss differs from the recorded one by
 * more than 0.1 %, a warning is logged.
 */
import type { GrpoOptions, StageReset, Trainer, TrainSequence } from '../../backends/trainer/trainer'
import type { CallLabel, Metrics } from '../../messages/facts'
import type { FailureStreaks } from '../../runtime/actor/failureStreaks'
import { asError, TroupeError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'
import type { Log } from '../../runtime/log'
import type { checkpoints } from './checkpoints'
import type { Batch, LearnerRequest } from './learner'
import { goOnOrBeginAnew, type Recorder, recordPartials } from './partials'
import type { KeptCheckpoint } from './retention'
import { withCure } from './soundCheckpoint'
import { batchFaults, callKinds } from './trainerCalls'
import { factsOf, trainSequences } from './trainSequences'

type TrainRequest = Extract<LearnerRequest, { kind: 'train' }>

export interface TrainerStepsOptions extends Recorder {
  readonly journal: Journal
  readonly grpo: GrpoOptions
  /** Updates between two checkpoints in the middle of a step; 0: none. */
  readonly innerCheckpointEvery: number
  /** Labels of agents' calls that are trained on. */
  readonly trains?: readonly CallLabel[]
  readonly written: ReturnType<typeof checkpoints>
  readonly calls: FailureStreaks
  readonly log: Log
}

/** Result of computing a step: its metrics, or `fault`, the error with which the trainer refused the batch. */
export type Computed = { readonly metrics: Metrics } | { readonly fault: TroupeError }

/** Relative difference between a recomputed and a recorded loss above which a warning is logged. */
const recomputedTolerance = 1e-3

export function trainerSteps(options: TrainerStepsOptions) {
  const { journal, grpo, innerCheckpointEvery: every, written, calls, log } = options
  /** Trainer, and number of the step whose resulting state it holds; undefined while that is not known. */
  let held: { readonly trainer: Trainer; readonly step: number } | undefined

  /** True if the trainer holds the state that `step` begins with. */
  const holdsBefore = (trainer: Trainer, step: number) => held?.trainer === trainer && held.step === step - 1

  /** Reads the batch's sequences from the log, in the batch's order. */
  const sequencesOf = async (batch: Batch): Promise<TrainSequence[]> =>
    trainSequences(batch, await factsOf(journal, batch), options.trains)

  /** Loads the newest checkpoint. A damaged one ends the run: no later try finds other files. */
  async function load(trainer: Trainer, { checkpoint, saved }: TrainRequest): Promise<void> {
    const { name, manifest } = checkpoint
    if (manifest === undefined) {
      log.warn({ checkpoint: name }, 'the log has no digest of this checkpoint: only its own manifest checks its files')
    }
    try {
      await calls.attempt(callKinds.load, () => trainer.load(written.pathOf(name), manifest))
    } catch (thrown) {
      throw await withCure(thrown, { checkpoint, saved, pathOf: written.pathOf, run: journal.run })
    }
  }

  async function stepOf(
    trainer: Trainer,
    { started }: Batch,
    sequences: readonly TrainSequence[],
    { epoch, version, batch }: TrainRequest,
    from: KeptCheckpoint | undefined,
  ): Promise<Metrics> {
    const { step } = started
    const of = { prefix: written.partialPrefix(step, epoch), every, owner: `${step}/${started.epoch}` }
    const kind = step === batch.started.step ? callKinds.step : callKinds.again
    const recorder = { ...options, progressed: () => calls.progressed(kind) }
    const { on, recorded } = recordPartials({ ...of, step, version, epoch }, recorder)
    const resume = written.resumeOf(from)
    const metrics = await calls.attempt(kind, () => trainer.step(sequences, grpo, { ...on, ...resume }))
    await recorded()
    return metrics
  }

  /**
   * Computes the finished steps of `since` again from index `at` on; the first of them resumes from the checkpoint
   * `from`, if it is given. Of a rejected step only the reset of the trainer is repeated.
   */
  async function repeat(trainer: Trainer, request: TrainRequest, at: number, from?: KeptCheckpoint): Promise<void> {
    for (const [index, batch] of request.since.entries()) {
      if (index < at) continue
      const resume = index === at ? from : undefined
      if (resume === undefined) await resetTrainer(trainer, batch.reset, grpo)
      if (batch.rejected) continue
      const metrics = await stepOf(trainer, batch, await sequencesOf(batch), request, resume)
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

  /**
   * Computes the step: from `partial`, a checkpoint in the middle of this step or of an earlier one; without it, from
   * the state that the trainer holds, if that is the state before the step, else from the newest checkpoint.
   */
  async function computed(trainer: Trainer, request: TrainRequest, partial?: KeptCheckpoint): Promise<Computed> {
    const { batch, since } = request
    const { step } = batch.started
    const isInside = partial?.step === step
    if (!isInside && !holdsBefore(trainer, step)) {
      held = undefined
      const at = since.findIndex(({ started }) => started.step === partial?.step)
      if (at < 0) await load(trainer, request)
      await repeat(trainer, request, Math.max(0, at), at < 0 ? undefined : partial)
      held = { trainer, step: step - 1 }
    }
    if (!isInside) await written.retry(trainer, step - 1)
    const sequences = await sequencesOf(batch)
    // A stage that begins may ask for a reset. It is made here, because the newest checkpoint still holds the previous
    // stage's optimizer and reference model.
    if (!isInside) await resetTrainer(trainer, batch.reset, grpo)
    held = undefined
    try {
      const metrics = await stepOf(trainer, batch, sequences, request, isInside ? partial : undefined)
      held = { trainer, step }
      return { metrics }
    } catch (thrown) {
      const error = asError(thrown)
      if (!(error instanceof TroupeError) || !batchFaults.has(error.code)) throw error
      // After a refused batch the trainer restores the state that it had before the call. That is the state before this
      // step, which a rejected step leaves unchanged. If the call resumed in the middle of the step, the restored state
      // is unknown.
      if (!isInside) held = { trainer, step }
      return { fault: error }
    }
  }

  return {
    compute(trainer: Trainer, request: TrainRequest): Promise<Computed> {
      const { step } = request.batch.started
      const partial = holdsBefore(trainer, step) ? undefined : request.partial
      return goOnOrBeginAnew(`step ${step}`, partial, from => computed(trainer, request, from), log)
    },

    /** Notes that `trainer` holds the state that `step` left. */
    holds(trainer: Trainer, step: number): void {
      held = { trainer, step }
    },
  }
}

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
