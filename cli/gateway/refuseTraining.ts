/**
 * Refuses a stand-alone gateway over the log of a run of `troupe train`, `rollout` or `eval`: by claiming the
 * partition, the gateway would take it from the run's own coordinator, whose decisions would then no longer count.
 */
import { TroupeError } from '../../runtime/errors'
import type { Journal } from '../../runtime/journal/journal'

/** Checks the run's log. @throws TroupeError gateway.run_in_training if one of these commands started the run */
export async function refuseTraining(journal: Pick<Journal, 'offsets'>, run: string): Promise<void> {
  // These commands write a claim to the topic `learner` when they start a run; a gateway writes nothing to it.
  const { next } = await journal.offsets('learner', 0)
  if (next === 0) return
  throw new TroupeError('gateway.run_in_training', {
    boundary: 'config',
    retriable: false,
    message: `run '${run}' was started by troupe train, rollout or eval; a gateway would take over its partition, and the run's own decisions would no longer count`,
    hint: 'give another --run; for agents that the run itself starts, use the section `agent` of its recipe (docs/gateway.md)',
  })
}
