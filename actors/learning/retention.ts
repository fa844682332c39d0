/**
 * Chooses the checkpoints that a run no longer keeps.
 *
 * in   the checkpoints in the order in which they were saved, those that a step needs, how many are kept
 * out  the checkpoints to remove, oldest first
 * Invariant: the newest `keep` checkpoints stay, and so does every checkpoint that is needed: the newest one of a
 * completed step, and those from which the step under way, the steps since that checkpoint and the last finished step
 * (completed or rejected) were computed. No other checkpoint has to stay for a stage's reference policy, which is part
 * of every checkpoint that was saved in the stage.
 */
import type { PolicyVersion } from '../../messages/ids'

export interface KeptCheckpoint {
  readonly step: number
  /** Version whose published weights the checkpoint shares; null for one in the middle of a cold start or a step. */
  readonly version: PolicyVersion | null
  /** Name of the checkpoint's directory. */
  readonly name: string
  /** sha256 of the checkpoint's manifest.json; absent in old logs. */
  readonly manifest?: string
}

export function obsolete(
  saved: readonly KeptCheckpoint[],
  needed: ReadonlySet<string>,
  keep: number | 'all',
): readonly KeptCheckpoint[] {
  if (keep === 'all') return []
  return saved.slice(0, Math.max(0, saved.length - keep)).filter(({ name }) => !needed.has(name))
}
