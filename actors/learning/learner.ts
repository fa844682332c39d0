/**
 * Learner: trains on the selected groups of one step after the other, and publishes the weights.
 *
 * in   learner.claimed, rollout.requested, curriculum.advanced, group.selected | rejected, stage.changed, step.*,
 *      weights.published, checkpoint.saved | removed, run.finished | resumed, control.obeyed
 * out  step.started; requests to train (answered by checkpoint.saved, weights.published, step.completed | rejected) and
 *      to remove checkpoints (answered by checkpoint.removed)
 * Invariant: `step.started` fixes the batch, ordered by group and member, before anything is computed. If a process
 * dies, the started step is still finished with that batch: the trainer continues from the newest checkpoint and
 * computes the steps since then again. The learner's facts carry the epoch (log offset) of the latest claim; `fenced`
 * hides from the learner the facts that an earlier learner writes after that claim.
 */

import type { StageReset } from '../../backends/trainer/trainer'
import type { GroupSelected, Metrics, StepStarted } from '../../messages/facts'
import {
  type Epoch,
  epoch,
  type GroupId,
  groupOf,
  type PolicyVersion,
  policyVersion,
  trajectoryId,
} from '../../messages/ids'
import type { Effects } from '../../runtime/effects'
import type { Behaviour, Origin } from '../../runtime/host/behaviour'
import { pausedAfter } from '../ownership/orders'
import { type KeptCheckpoint, obsolete } from './retention'

export interface LearnerPlan {
  readonly groupsPerStep: number
  readonly refillShare: number
  readonly steps: number
  /** Number of the newest checkpoints to keep, besides those still needed. Default: all. */
  readonly keepCheckpoints?: number | 'all'
  /**
   * Names of checkpoints that are treated as if they had never been saved, because the user resumes from an older one
   * (`--from-checkpoint`); the steps after that one are computed again. Their files are not removed. Default: none.
   */
  readonly without?: ReadonlySet<string>
}

/** Checkpoint from which the trainer continues. */
export type BaseCheckpoint = Pick<KeptCheckpoint, 'step' | 'name' | 'manifest'>

/** Log position at which a group's facts begin. */
interface GroupPlace {
  readonly partition: number
  readonly offset: number
}

interface Gathered {
  readonly requested: ReadonlySet<GroupId>
  readonly selected: ReadonlyMap<GroupId, GroupSelected>
  readonly rejected: ReadonlySet<GroupId>
}

/** An optimizer step whose batch is fixed. */
export interface Batch {
  readonly started: StepStarted
  readonly groups: readonly GroupSelected[]
  readonly places: ReadonlyMap<GroupId, GroupPlace>
  /** Reset of the trainer before this step, if a stage that asks for one begins with it. */
  readonly reset?: StageReset
  /** Metrics of the step; null until it is over. */
  readonly metrics: Metrics | null
  readonly rejected: boolean
}

export interface LearnerState {
  /** Offset of the latest `learner.claimed`; the learner's facts carry it. */
  readonly epoch: Epoch
  readonly published: PolicyVersion | null
  /** Newest checkpoint of a completed step; before any, that of step 0 (the model that training starts from). */
  readonly checkpoint: BaseCheckpoint | null
  /** Checkpoints of whole steps that were saved and not removed, in the order in which they were saved. */
  readonly saved: readonly KeptCheckpoint[]
  /** Checkpoints in the middle of the cold start (step 0) and of steps, in the order in which they were saved. */
  readonly partial: readonly KeptCheckpoint[]
  /** Name of the checkpoint from which the last finished (completed or rejected) step was computed. */
  readonly lastBase: string | null
  readonly done: number
  readonly gathered: ReadonlyMap<number, Gathered>
  readonly places: ReadonlyMap<GroupId, GroupPlace>
  /** Batches of the steps since the newest checkpoint, oldest first; the last step may still be training. */
  readonly batches: readonly Batch[]
  /** Resets of the trainer, by the number of the step that each precedes. */
  readonly resets: ReadonlyMap<number, StageReset>
  readonly finished: boolean
  readonly paused: boolean
}

export type LearnerRequest =
  | {
      readonly kind: 'cold-start'
      readonly epoch: Epoch
      /** Newest checkpoint in the middle of the cold start, to resume from. Absent: the cold start begins anew. */
      readonly resume?: KeptCheckpoint
    }
  | {
      readonly kind: 'train'
      /** Epoch of the learner that completes the step, even if another process started it. */
      readonly epoch: Epoch
      readonly batch: Batch
      readonly version: PolicyVersion
      readonly checkpoint: BaseCheckpoint
      /** Batches of the finished steps since `checkpoint`; the trainer computes them again if it lost their result. */
      readonly since: readonly Batch[]
      /** Newest checkpoint saved in the middle of this step, or of a step in `since`; a trainer can resume from it. */
      readonly partial?: KeptCheckpoint
      readonly saved: readonly KeptCheckpoint[]
    }
  | {
      readonly kind: 'remove-checkpoint'
      readonly epoch: Epoch
      readonly checkpoint: KeptCheckpoint
      /** Newest published version. */
      readonly version: PolicyVersion
    }

const none: Gathered = { requested: new Set(), selected: new Map(), rejected: new Set() }

export function learner(plan: LearnerPlan): Behaviour<LearnerState, never, LearnerRequest> {
  const largest = Math.floor(plan.groupsPerStep * (1 + plan.refillShare))

  /**
   * Returns the `step.started` that fixes the next step's batch; undefined while that step cannot start: a group of it
   * is undecided or still to be drawn, none is selected, the step before is not over, or the run is paused, over, or
   * without weights or a checkpoint.
   */
  function start(state: LearnerState, fx: Effects): StepStarted | undefined {
    const step = state.done + 1
    const gathered = state.gathered.get(step)
    if (gathered === undefined || state.published === null || state.checkpoint === null) return undefined
    if (state.batches.at(-1)?.metrics === null || step > plan.steps || state.finished || state.paused) return undefined
    const decided = gathered.selected.size + gathered.rejected.size
    const enough = gathered.selected.size >= plan.groupsPerStep || gathered.requested.size >= largest
    if (decided < gathered.requested.size || !enough || gathered.selected.size === 0) return undefined
    return {
      type: 'step.started',
      at: fx.now(),
      step,
      epoch: state.epoch,
      baseVersion: state.published,
      baseCheckpoint: state.checkpoint.name,
      trajectories: [...gathered.selected.keys()]
        .sort()
        .flatMap(group => gathered.selected.get(group)!.kept.map(k => trajectoryId(group, k.member))),
    }
  }

  function trainRequests(state: LearnerState): LearnerRequest[] {
    if (state.finished) return []
    if (state.published === null) {
      const resume = lastPartial(state)
      return [{ kind: 'cold-start', epoch: state.epoch, ...(resume && { resume }) }]
    }
    const batch = state.batches.at(-1)
    if (batch === undefined || batch.metrics !== null || state.checkpoint === null) return []
    const { epoch, published: version, checkpoint, saved } = state
    const [since, partial] = [state.batches.slice(0, -1), lastPartial(state)]
    return [{ kind: 'train', epoch, batch, version, checkpoint, since, ...(partial && { partial }), saved }]
  }

  function removals(state: LearnerState): LearnerRequest[] {
    const { epoch, saved, partial, published, batches, lastBase, checkpoint } = state
    const bases = batches.map(b => b.started.baseCheckpoint)
    const needed = new Set([...bases, lastBase ?? '', checkpoint?.name ?? ''])
    const gone = [
      ...obsolete(saved, needed, plan.keepCheckpoints ?? 'all'),
      ...partial.filter(one => one !== lastPartial(state)),
    ]
    return gone.map(checkpoint => {
      return { kind: 'remove-checkpoint', epoch, checkpoint, version: published ?? policyVersion(0) }
    })
  }

  return {
    name: 'learner',
    initial: () => ({
      epoch: epoch(0),
      published: null,
      checkpoint: null,
      saved: [],
      partial: [],
      lastBase: null,
      done: 0,
      gathered: new Map(),
      places: new Map(),
      batches: [],
      resets: new Map(),
      finished: false,
      paused: false,
    }),
    evolve(state, fact, origin) {
      switch (fact.type) {
        case 'learner.claimed':
          return { ...state, epoch: epoch(origin.offset) }
        case 'rollout.requested':
          if (fact.purpose !== 'train' || fact.step <= state.done || state.places.has(fact.group)) return state
          return { ...state, places: new Map(state.places).set(fact.group, placeOf(origin)) }
        case 'curriculum.advanced':
          if (fact.purpose !== 'train') return state
          return changeStep(state, fact.step, g => ({ ...g, requested: new Set([...g.requested, ...fact.groups]) }))
        case 'group.selected':
          return changeStep(state, fact.step, g =>
            isDecided(g, fact.group) ? g : { ...g, selected: new Map(g.selected).set(fact.group, fact) },
          )
        case 'group.rejected':
          return changeStep(state, fact.step, g =>
            isDecided(g, fact.group) ? g : { ...g, rejected: new Set(g.rejected).add(fact.group) },
          )
        case 'step.started':
          return started(state, fact)
        case 'step.completed':
          return over(state, fact.step, fact.metrics, false)
        case 'step.rejected':
          return over(state, fact.step, fact.metrics, true)
        case 'checkpoint.saved': {
          const { step, version, name } = fact
          if (plan.without?.has(name)) return state
          const checked = fact.manifest === undefined ? {} : { manifest: fact.manifest }
          if (fact.updates !== undefined) {
            // A cold start or step that begins anew in the same process writes its checkpoints under the same names.
            return { ...state, partial: [...without(state.partial, name), { step, version: null, name, ...checked }] }
          }
          const saved = [...without(state.saved, name), { step, version, name, ...checked }]
          // A step's checkpoint may be in the log before the step's completion. If a crash loses the completion, the
          // step is trained again, from the checkpoint before.
          if (step > state.done) return { ...state, saved }
          const batches = state.batches.filter(b => b.started.step > step)
          return { ...state, checkpoint: { step, name, ...checked }, saved, batches }
        }
        case 'checkpoint.removed':
          return { ...state, saved: without(state.saved, fact.name), partial: without(state.partial, fact.name) }
        case 'weights.published':
          return { ...state, published: fact.version }
        case 'stage.changed': {
          const { resetOptimizer: optimizer = false, updateReference: reference = false, step } = fact
          if (!optimizer && !reference) return state
          return { ...state, resets: new Map(state.resets).set(step + 1, { optimizer, reference }) }
        }
        case 'run.finished':
          return { ...state, finished: true }
        case 'run.resumed':
          return { ...state, finished: false }
        case 'control.obeyed':
          return { ...state, paused: pausedAfter(state.paused, fact.order) }
        default:
          return state
      }
    },
    pending(state, fx) {
      const fact = start(state, fx)
      const requests = [...trainRequests(state), ...removals(state)]
      return { facts: fact === undefined ? [] : [fact], commands: [], requests }
    },
  }
}

const without = (kept: readonly KeptCheckpoint[], gone: string) => kept.filter(({ name }) => name !== gone)

/**
 * Returns the newest checkpoint in the middle of a cold start or of a step, if it is still useful: before the first
 * weights are published, or while the step is not rejected and no checkpoint of a whole step covers it. Otherwise
 * returns undefined. All other checkpoints in the middle of a call are removed.
 */
function lastPartial({ partial, published, batches }: LearnerState): KeptCheckpoint | undefined {
  const newest = partial.at(-1)
  if (newest === undefined || published === null) return newest
  return batches.some(b => b.started.step === newest.step && !b.rejected) ? newest : undefined
}

/** True if the group was selected or rejected before: only the first such decision counts. */
const isDecided = (gathered: Gathered, group: GroupId) => gathered.selected.has(group) || gathered.rejected.has(group)

const baseOf = ({ step, name, manifest }: KeptCheckpoint): BaseCheckpoint =>
  manifest === undefined ? { step, name } : { step, name, manifest }

const placeOf = (origin: Origin): GroupPlace => ({ partition: origin.partition, offset: origin.offset })

function changeStep(state: LearnerState, step: number, change: (g: Gathered) => Gathered): LearnerState {
  const before = state.gathered.get(step) ?? none
  const after = change(before)
  if (after === before || step <= state.done) return state
  return { ...state, gathered: new Map(state.gathered).set(step, after) }
}

/** Records the first `step.started` of the step after the last finished one; any other one changes nothing. */
function started(state: LearnerState, fact: StepStarted): LearnerState {
  if (fact.step !== state.done + 1 || state.batches.at(-1)?.started.step === fact.step) return state
  const chosen = new Set(fact.trajectories.map(groupOf))
  const groups = [...(state.gathered.get(fact.step)?.selected.values() ?? [])].filter(g => chosen.has(g.group))
  const places = new Map([...chosen].map(g => [g, state.places.get(g)!]))
  const reset = state.resets.get(fact.step)
  const batch: Batch = { started: fact, groups, places, metrics: null, rejected: false, ...(reset && { reset }) }
  return { ...state, batches: [...state.batches, batch] }
}

function over(state: LearnerState, step: number, metrics: Metrics, rejected: boolean): LearnerState {
  if (step <= state.done) return state
  const batches = state.batches.map(b => (b.started.step === step ? { ...b, metrics, rejected } : b))
  const gathered = new Map(state.gathered)
  gathered.delete(step)
  const spent = state.gathered.get(step)?.requested ?? new Set()
  const places = new Map([...state.places].filter(([group]) => !spent.has(group)))
  // A rejected step has no checkpoint: one in the log is of an earlier try that a crash cut off, with another state.
  const own = rejected ? undefined : state.saved.findLast(c => c.step === step)
  return {
    ...state,
    checkpoint: own === undefined ? state.checkpoint : baseOf(own),
    lastBase: state.batches.find(b => b.started.step === step)?.started.baseCheckpoint ?? state.lastBase,
    done: step,
    gathered,
    places,
    batches: own === undefined ? batches : batches.filter(b => b.started.step > step),
  }
}
