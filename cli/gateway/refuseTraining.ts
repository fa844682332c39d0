/**
 * Refuses a stand-alone gateway over the log of a run of `troupe train`, `rollout` or `eval`: by claiming the
 * partition, the gateway would take it from the run's own coordinator, whose decisions would then no longer count.
 */
import { TroupeError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'

/** @throws TroupeError gateway.run_in_training */
export async function refuseTraining(journal: Pick<Journal, 'offsets'>, run: string): Promise<void> {
  // A run with a learner's or curriculum's claim is one of these commands'; a gateway writes nothing to this topic.
  const { next } = await journal.offsets('learner', 0)
  if (next === 0) return
  throw new TroupeError('gateway.run_in_training', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' is one of troupe train, rollout or eval; a gateway would take its partition over, and the run's own decisions would no longer count`,
    hint: 'give another --run; for agents that the run itself starts, use the section `agent` of its recipe (docs/gateway.md)',
  })
}
