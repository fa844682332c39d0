/**
 * Tells the user what to do about a checkpoint that the trainer refused: continue from an older one whose files match
 * its manifest.
 *
 * in   the trainer's error, the checkpoints that the run keeps        out  the same error, with the command to continue
 * Invariant: no checkpoint is changed, and none is chosen without the user, since the steps after an older checkpoint
 * have to be computed again.
 */
import { checkFiles } from '../../backends/weights/manifest'
import { TroupeError } from '../../runtime/errors'
import type { BaseCheckpoint } from './learner'
import type { KeptCheckpoint } from './retention'

/** Codes of the trainer's errors that say that a checkpoint cannot be used. */
const damaged: ReadonlySet<string> = new Set(['trainer.checkpoint_corrupt', 'trainer.no_checkpoint'])

export interface Refused {
  readonly checkpoint: BaseCheckpoint
  /** Checkpoints of whole steps that were saved and not removed, in the order in which they were saved. */
  readonly saved: readonly KeptCheckpoint[]
  readonly pathOf: (name: string) => string
  readonly run: string
}

/**
 * Returns the error of a damaged checkpoint with a hint: the command that resumes from the newest older checkpoint
 * whose files match its manifest, or that there is none. Returns any other error as it is.
 */
export async function withCure(thrown: unknown, refused: Refused): Promise<unknown> {
  if (!(thrown instanceof TroupeError) || !damaged.has(thrown.code)) return thrown
  return new TroupeError(thrown.code, {
    boundary: 'trainer',
    retriable: false,
    message: `checkpoint ${refused.checkpoint.name} cannot be loaded: ${thrown.message}`,
    hint: await cureOf(refused),
    cause: thrown,
  })
}

async function cureOf({ checkpoint, saved, pathOf, run }: Refused): Promise<string> {
  const older = saved.filter(({ step, name }) => name !== checkpoint.name && step <= checkpoint.step).reverse()
  for (const { name, step, manifest } of older) {
    const checked = await checkFiles(pathOf(name), manifest)
    if (checked.faults.length > 0 || checked.manifest === null) continue
    const again = `the steps since step ${step} are computed again from the log`
    return `continue from ${name}, whose files match its manifest: \`troupe train RECIPE --resume ${run} --from-checkpoint ${name}\` (${again}); or replace the damaged checkpoint by an intact copy`
  }
  return 'the run keeps no older checkpoint whose files match its manifest: replace the damaged checkpoint by an intact copy, then resume the run'
}
