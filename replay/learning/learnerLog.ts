/**
 * Reads the optimizer steps of a recorded run, and its checkpoints.
 *
 * in   the `learner` topic
 * out  each step with its batch, its metrics, the digest of the weights it published and the resets before it;
 *      checkpoints, saved and removed; for each trajectory the last step that had it in its batch
 * Invariant: when `step.started` is recorded twice for one step, the first one counts; facts that a learner wrote after
 * another learner had replaced it are ignored.
 */
import { isStale } from '../../actors/ownership/fencing'
import type { StageReset } from '../../backends/trainer/trainer'
import type { CheckpointSaved, LearnerFact, Metrics, StepStarted } from '../../messages/facts'
import type { TrajectoryId } from '../../messages/ids'
import type { RecordedRun } from '../log/recordedRun'

export interface RecordedStep {
  readonly started: StepStarted
  /** Metrics of the step's result; null while the step has not ended. */
  readonly metrics: Metrics | null
  /** Digest of the weights that the step published; null when it published none. */
  readonly digest: string | null
  readonly rejected: boolean
  /** Resets of optimizer or reference model before this step, which is then the first of a stage; undefined: none. */
  readonly reset: StageReset | undefined
}

/**
 * Reads the `learner` topic. `checkpoints`: those saved after whole steps, in the log's order. `removed`: names of the
 * checkpoints that the run removed.
 */
export async function learnerLog(recorded: RecordedRun) {
  const steps = new Map<number, { -readonly [K in keyof RecordedStep]: RecordedStep[K] }>()
  const checkpoints: CheckpointSaved[] = []
  const removed = new Set<string>()
  const digests = new Map<number, string>()
  const resets = new Map<number, StageReset>()
  let claimed: number | undefined
  await recorded.scan('learner', ({ message, offset }) => {
    const fact = message as LearnerFact
    if (isStale(claimed, fact)) return
    switch (fact.type) {
      case 'learner.claimed':
        claimed = offset
        break
      case 'step.started':
        if (!steps.has(fact.step)) {
          const begun = { started: fact, metrics: null, digest: null, rejected: false, reset: resets.get(fact.step) }
          steps.set(fact.step, begun)
        }
        break
      case 'stage.changed': {
        const { resetOptimizer: optimizer = false, updateReference: reference = false } = fact
        if (optimizer || reference) resets.set(fact.step + 1, { optimizer, reference })
        break
      }
      case 'weights.published':
        digests.set(fact.step, fact.digest)
        break
      case 'step.completed':
      case 'step.rejected': {
        const step = steps.get(fact.step)
        if (step === undefined || step.metrics !== null) break
        step.metrics = fact.metrics
        step.rejected = fact.type === 'step.rejected'
        step.digest = digests.get(fact.step) ?? null
        break
      }
      case 'checkpoint.saved':
        if (fact.updates === undefined) checkpoints.push(fact)
        break
      case 'checkpoint.removed':
        removed.add(fact.name)
        break
    }
  })
  return { steps: steps as ReadonlyMap<number, RecordedStep>, checkpoints, removed }
}

/** The optimizer step that trained on a trajectory, and the policy version that the step started from. */
export interface TrainedIn {
  readonly step: number
  readonly baseVersion: number
}

/** The last step that had the trajectory in its batch, and how that step ended. */
export interface TriedIn extends TrainedIn {
  /** A rejected step left the weights unchanged; an open step may still complete or be rejected. */
  readonly outcome: 'completed' | 'rejected' | 'open'
}

/** Maps each trajectory to the last step that had it in its batch. */
export async function triedSteps(recorded: RecordedRun): Promise<ReadonlyMap<TrajectoryId, TriedIn>> {
  const steps = new Map<number, { readonly started: StepStarted; outcome: TriedIn['outcome'] }>()
  let claimed: number | undefined
  await recorded.scan('learner', ({ message, offset }) => {
    const fact = message as LearnerFact
    if (fact.type === 'learner.claimed') claimed = offset
    if (isStale(claimed, fact)) return
    if (fact.type === 'step.started' && !steps.has(fact.step)) steps.set(fact.step, { started: fact, outcome: 'open' })
    const step = 'step' in fact ? steps.get(fact.step) : undefined
    if (step === undefined) return
    if (fact.type === 'step.completed') step.outcome = 'completed'
    else if (fact.type === 'step.rejected') step.outcome = 'rejected'
  })
  return new Map(
    [...steps.values()].flatMap(({ started: { step, baseVersion, trajectories }, outcome }) =>
      trajectories.map(trajectory => [trajectory, { step, baseVersion, outcome }] as const),
    ),
  )
}
