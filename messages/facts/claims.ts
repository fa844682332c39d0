/**
 * Claims in the `trajectories` topic: a process took over a partition, the scheduler's role, or the curriculum's role.
 * After a claim, readers ignore decisions of the partition's former owner, and requests for rollouts of a former
 * curriculum.
 */
import type { Epoch } from '../ids'

/** A process took over a partition. The offset of this fact is the partition's epoch from here on. */
export interface PartitionClaimed {
  readonly type: 'partition.claimed'
  readonly at: number
  readonly partition: number
  /** Name of the process that took over. */
  readonly owner: string
}

/**
 * A process took over as scheduler. It does not know the turns asked before this fact, so coordinators ask again for
 * those without an answer.
 */
export interface SchedulerClaimed {
  readonly type: 'scheduler.claimed'
  readonly at: number
  readonly partition: number
  /** Name of the process that took over. */
  readonly owner: string
}

/**
 * A process took over as curriculum. Requests of an earlier curriculum after this fact are ignored in this partition.
 */
export interface CurriculumClaimed {
  readonly type: 'curriculum.claimed'
  readonly at: number
  readonly partition: number
  /** Name of the process that took over. */
  readonly owner: string
  /** Offset of the process's `learner.claimed`. A late claim with a lower epoch than an earlier one has no effect. */
  readonly learnerEpoch: Epoch
}
