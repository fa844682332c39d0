/**
 * Chooses the checkpoint from which a resumed run continues (`--from-checkpoint`).
 *
 * in   the facts of the log before the resume, a checkpoint's name        out  names of the checkpoints to ignore
 * Invariant: checkpoints that this resume saves have other names (they carry the epoch of its claim), so that only
 * earlier ones are ignored.
 */
import type { CheckpointSaved, Fact } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'

/**
 * Returns the names of the checkpoints to ignore so that the run continues from `from`: any other checkpoint of the
 * same step, and all of later steps, those written in the middle of a later step included; none if `from` is undefined.
 * @throws TroupeError config.no_checkpoint if the log has no checkpoint `from`, or it was removed
 */
export function ignoredCheckpoints(facts: Iterable<Fact>, from: string | undefined): ReadonlySet<string> {
  const saved = new Map<string, CheckpointSaved>()
  const partial: CheckpointSaved[] = []
  for (const fact of facts) {
    if (fact.type === 'checkpoint.removed') saved.delete(fact.name)
    if (fact.type !== 'checkpoint.saved') continue
    if (fact.updates === undefined) saved.set(fact.name, fact)
    else partial.push(fact)
  }
  if (from === undefined) return new Set()
  const chosen = saved.get(from)
  if (chosen === undefined) {
    throw new TroupeError('config.no_checkpoint', {
      boundary: 'config',
      retriable: false,
      message: `--from-checkpoint names ${JSON.stringify(from)}, which the run does not keep; it keeps: ${[...saved.keys()].join(', ') || 'none'}`,
      hint: 'give one of these names, or leave the option out to continue from the newest',
    })
  }
  const later = [...saved.values()].filter(({ name, step }) => name !== from && step >= chosen.step)
  return new Set([...later, ...partial.filter(({ step }) => step > chosen.step)].map(({ name }) => name))
}
