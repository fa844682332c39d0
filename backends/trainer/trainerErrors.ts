/**
 * Errors of the trainer's streamed calls (Step, Sft, Checkpoint): the process refused the call, the call exceeded its
 * deadline, or the connection broke before the answer. policyProcess.ts has the error of a process that has ended,
 * policyClient.ts those of other calls.
 */
import { asError, TroupeError } from '../../runtime/errors'

/** An event with which the process refuses a call. */
interface Refusal {
  readonly errorCode: string
  readonly errorMessage: string
}

const hints: Readonly<Record<string, string>> = {
  'trainer.not_finite': 'lower the learning rate, or look for rewards and log-probabilities that are not numbers',
  'trainer.bad_sequence': 'use the same tokenizer and vocabulary for engine and trainer',
  'trainer.empty_batch': 'look at the rollouts of the step: none of their turns has tokens that the model sampled',
  'trainer.bad_option': 'change that field of the recipe with --set; `troupe check RECIPE` lists all problems',
  'trainer.no_checkpoint': 'restore the directory, or continue from an older checkpoint with --from-checkpoint NAME',
  'trainer.context_exceeded': "lower the recipe's token limits, or use a model with a longer context",
  'trainer.shape_mismatch': 'resume the run with the model, and the train.lora, that it began with',
  'trainer.unnamed_file': 'remove that file, or start with another checkpoint; then resume the run',
  'trainer.model_differs':
    'put back the config, tokenizer and chat template that the run began with: the checkpoint has a copy of each',
  'checkpoint.disk_full':
    'free space on that file system, raise the quota of this user, or lower train.keepCheckpoints and train.keepVersions',
  'checkpoint.file_too_large':
    'raise the limit on file sizes of this process (`ulimit -f unlimited`), or use a file system with larger files; then resume the run with --resume',
  'trainer.rank_lost': 'the trainer restarts and computes the step again; check the free memory of its machines',
}

const retriable: ReadonlySet<string> = new Set(['trainer.busy', 'trainer.rank_lost', 'checkpoint.disk_full'])

export function refused({ errorCode, errorMessage }: Refusal): TroupeError {
  const hint = hints[errorCode]
  return new TroupeError(errorCode, {
    boundary: 'trainer',
    retriable: retriable.has(errorCode),
    message: errorMessage,
    ...(hint === undefined ? {} : { hint }),
  })
}

export function late(method: string, timeoutMs: number): TroupeError {
  return new TroupeError('trainer.timeout', {
    boundary: 'trainer',
    retriable: true,
    message: `the trainer did not answer the call ${method} within ${timeoutMs} ms, so the call was cancelled`,
  })
}

export function broken(method: string, thrown: unknown): TroupeError {
  const cause = asError(thrown)
  return new TroupeError('trainer.lost', {
    boundary: 'trainer',
    retriable: true,
    message: `the connection to the trainer broke during ${method}: ${cause.message}`,
    cause,
  })
}
