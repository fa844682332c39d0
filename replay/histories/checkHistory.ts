/**
 * Checks the ownership of partitions, learner, curriculum and scheduler in a recorded run's history
 * (historyChecker.ts). `replay verify` includes this check.
 */
import type { RecordedRun } from '../log/recordedRun'
import { HistoryChecker } from './historyChecker'
import type { Violation } from './violation'

/**
 * Lists the violations; empty if the history keeps the rules. Unreadable records are skipped and listed in
 * `recorded.faults`.
 */
export async function checkHistory(recorded: RecordedRun): Promise<readonly Violation[]> {
  const checker = new HistoryChecker()
  for (const topic of ['runs', 'trajectories', 'learner'] as const) {
    await recorded.scan(topic, entry => {
      checker.take(entry)
    })
  }
  return checker.violations()
}
