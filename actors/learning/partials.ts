/**
 * Records the checkpoints that the trainer writes in the middle of a cold start or a step, and resumes a call from one.
 *
 * in   a call of the trainer, the newest of its checkpoints        out  a checkpoint.saved with `updates` for each
 * Invariant: if the checkpoint cannot be used, the call begins anew; any other error is thrown.
 */
import { basename } from 'node:path'
import type { PartialCheckpoints } from '../../backends/trainer/trainer'
import type { CheckpointSaved } from '../../messages/facts'
import type { Epoch, PolicyVersion } from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import { asError, TroupeError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { pendingAppends } from './pendingAppends'
import type { KeptCheckpoint } from './retention'

export interface PartialsOf extends Pick<PartialCheckpoints, 'prefix' | 'every' | 'owner'> {
  readonly step: number
  /** Newest published policy version at the time of the call; 0 for a cold start. */
  readonly version: PolicyVersion
  readonly epoch: Epoch
}

export interface Recorder {
  readonly append: (fact: CheckpointSaved) => Promise<void>
  readonly fx: Effects
  /** Called once for each checkpoint when it is in the log: a repetition of the call then resumes from it. */
  readonly progressed?: () => void
}

/**
 * Returns `on`, the trainer's options for checkpoints in the middle of one call, and `recorded`, which resolves when
 * every checkpoint written so far is in the log, and rejects if one could not be appended.
 */
export function recordPartials({ step, version, epoch, ...on }: PartialsOf, { append, fx, progressed }: Recorder) {
  const facts = pendingAppends(append)
  const onSaved: PartialCheckpoints['onSaved'] = ({ directory, updates, manifest, bytes }) => {
    const name = basename(directory)
    const fact = { step, version, name, digest: '', manifest, bytes, updates, epoch }
    facts.append({ type: 'checkpoint.saved', at: fx.now(), ...fact }).then(progressed, () => {})
  }
  return { on: { ...on, onSaved }, recorded: facts.recorded }
}

/** Codes of errors after which a call cannot resume from its checkpoint. */
const cannotGoOn: ReadonlySet<string> = new Set([
  ...['trainer.other_call', 'trainer.no_checkpoint', 'trainer.checkpoint_corrupt'],
])

/** Makes the call from the checkpoint `partial`, or from the beginning if that is undefined or cannot be used. */
export async function goOnOrBeginAnew<T>(
  what: string,
  partial: KeptCheckpoint | undefined,
  call: (from?: KeptCheckpoint) => Promise<T>,
  log: Log,
): Promise<T> {
  if (partial === undefined) return call()
  try {
    return await call(partial)
  } catch (thrown) {
    if (!cannotGoOn.has(asError(thrown) instanceof TroupeError ? (thrown as TroupeError).code : '')) throw thrown
    log.warn({ err: thrown, checkpoint: partial.name }, `${what} begins anew: it cannot resume from its checkpoint`)
    return call()
  }
}
