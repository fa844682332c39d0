/** Checks the ownership in a recorded run's history: see historyChecker.ts. `replay verify` does it beside its other checks. */
import type { RecordedRun } from '../log/recordedRun'
import { HistoryChecker } from './historyChecker'
import type { Violation } from './violation'

/** Lists the violations; empty for a lawful history. Unreadable records are left out and listed in `recorded.faults`. */
export async function checkHistory(recorded: RecordedRun): Promise<readonly Violation[]> {
  const checker = new HistoryChecker()
  for (const topic of ['runs', 'trajectories', 'learner'] as const) {
    await recorded.scan(topic, entry => {
      checker.take(entry)
    })
  }
  return checker.violations()
}
