/**
 * Kinds of calls to the trainer, and how their errors count against the run: the third failure of a kind in a row is
 * final.
 *
 * in   calls of the learner's port        out  the counts of one run; which errors reject a step's batch
 * Invariant: steps that are computed again after a crash are a kind of their own, since their success says nothing
 * about the step whose computation fails.
 */
import { type AttemptKind, FailureStreaks } from '../../runtime/actor/failureStreaks'
import { TroupeError } from '../../runtime/errors'

const kind = (call: string, field: string): AttemptKind => ({
  what: `the trainer's ${call}`,
  boundary: 'trainer',
  hint: `if the trainer is only slow, raise timeouts.${field}; \`train --resume\` continues from the newest checkpoint`,
})

export const callKinds = {
  sft: kind('supervised phase', 'sftMs'),
  step: kind('step', 'stepMs'),
  /** Repetition of a finished step whose result the trainer lost. */
  again: kind('repetition of a finished step', 'stepMs'),
  save: kind('saving of weights', 'saveMs'),
  checkpoint: kind('writing of a checkpoint', 'saveMs'),
  load: kind('loading of a checkpoint', 'loadMs'),
}

/**
 * Codes of errors after which the step is rejected and the trainer's state is unchanged: the batch is at fault, not the
 * trainer.
 */
export const batchFaults: ReadonlySet<string> = new Set([
  'trainer.not_finite',
  'trainer.empty_batch',
  'trainer.bad_sequence',
  'trainer.context_exceeded',
])

export const trainerCalls = (): FailureStreaks =>
  new FailureStreaks(error => {
    if (!(error instanceof TroupeError)) return 'failed'
    // The trainer still works on an earlier call that the learner has given up.
    if (error.code === 'trainer.busy') return 'ignored'
    // A full disk says nothing about the trainer: the learner waits until the disk has room, and repeats the write.
    if (error.code === 'checkpoint.disk_full') return 'ignored'
    return batchFaults.has(error.code) ? 'succeeded' : 'failed'
  })
