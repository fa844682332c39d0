/**
 * Evidence: everything that a log says about who owes which answer, as data.
 *
 * Made by `gatherEvidence` (a fold over the log's entries) and read by `explain`; both are pure, so a question about a
 * run has the same answer from its log on any machine. Only `Circumstances` come from outside the log: the clock, and
 * whether the processes that the log names still exist.
 */
import type { Rollout } from '../../actors/rollouts/rollout'
import type { EngineStatus, OfferSlots } from '../../messages/commands'
import type {
  CurriculumAdvanced,
  GroupClosed,
  GroupRejected,
  GroupSelected,
  RewardAssigned,
  RewardFailed,
  RolloutFinished,
  RunFinished,
  RunStarted,
  StepStarted,
  TurnCompleted,
  TurnInterrupted,
} from '../../messages/facts'
import type { EngineId, ExecutorId, GroupId, TrajectoryId } from '../../messages/ids'
import type { Place } from '../log/place'
import type { ProcessStanding } from '../log/processStanding'
import type { SupervisionTree } from '../log/supervisionTrees'

/** A record of the log: its type, when it was written (ms since 1970), and where it stands. */
export interface LastEvent {
  readonly what: string
  readonly at: number
  readonly place: Place
}

export interface Known<T> {
  readonly value: T
  readonly event: LastEvent
}

export interface RolloutEvidence {
  /** The rollout as its coordinator sees it. */
  readonly rollout: Rollout
  /** Latest fact about the rollout that counts. */
  readonly last: LastEvent
  /** `turn.asked` of the open turn; `tool.asked` of each open call by its index. */
  readonly asked: LastEvent | null
  readonly calls: ReadonlyMap<number, LastEvent>
  readonly turns: ReadonlyMap<number, Known<TurnCompleted>>
  readonly finished: Known<RolloutFinished> | null
  readonly reward: Known<RewardAssigned | RewardFailed> | null
  /** Latest interruption of a generation. */
  readonly interrupted: Known<TurnInterrupted> | null
  readonly partition: number
}

export interface GroupEvidence {
  readonly members: readonly TrajectoryId[]
  readonly size: number
  readonly purpose: string
  readonly step: number
  readonly requested: LastEvent
  readonly closed: Known<GroupClosed> | null
  readonly decision: Known<GroupSelected | GroupRejected> | null
}

export interface EngineEvidence {
  readonly joined: LastEvent | null
  readonly left: Known<string> | null
  readonly asleep: boolean
  /** Policy version whose weights the engine has loaded; null before the first. */
  readonly version: number | null
  readonly status: Known<EngineStatus> | null
  /** Latest record about the engine. */
  readonly last: LastEvent
}

export interface Evidence {
  readonly started: Known<RunStarted> | null
  /** Latest `run.started` or `run.resumed`. */
  readonly begun: LastEvent | null
  readonly finished: Known<RunFinished> | null
  readonly rollouts: ReadonlyMap<TrajectoryId, RolloutEvidence>
  readonly groups: ReadonlyMap<GroupId, GroupEvidence>
  readonly engines: ReadonlyMap<EngineId, EngineEvidence>
  readonly executors: ReadonlyMap<ExecutorId, Known<OfferSlots>>
  /** By `group/member#turn#attempt`: the scheduler's assignment of an attempt, and the request for it. */
  readonly assigned: ReadonlyMap<string, Known<EngineId>>
  readonly generated: ReadonlyMap<string, LastEvent>
  /** By `group/member#turn#call#attempt`: the dispatcher's assignment of a call, and the request for it. */
  readonly dispatched: ReadonlyMap<string, Known<ExecutorId>>
  readonly executed: ReadonlyMap<string, LastEvent>
  readonly verifications: ReadonlyMap<TrajectoryId, LastEvent>
  /** Latest sign of life of the scheduler: its `ledger.status`, or an assignment. */
  readonly scheduler: LastEvent | null
  /** Latest record of the dispatcher and of the verifier. */
  readonly dispatcher: LastEvent | null
  readonly verifier: LastEvent | null
  /** Latest claims of the partitions and of the learner, with the owner's name. */
  readonly owners: ReadonlyMap<number, Known<string>>
  readonly learner: Known<string> | null
  /** Newest published policy version, and the latest record of the trainer's work. */
  readonly published: Known<number> | null
  readonly trainer: LastEvent | null
  /** Number of steps that are over. */
  readonly done: number
  /** Step that was started and is not over. */
  readonly step: Known<StepStarted> | null
  /** Groups drawn for each step that is not over, and evaluations without a result. */
  readonly drawn: ReadonlyMap<number, readonly GroupId[]>
  readonly evaluations: readonly Known<CurriculumAdvanced>[]
  readonly curriculum: LastEvent | null
  /** Latest alarm of each name. */
  readonly alarms: ReadonlyMap<string, Known<string>>
  /** Pause of a person that holds, with its reason; drain or abort that was obeyed. */
  readonly paused: Known<string> | null
  readonly ends: Known<string> | null
  /** Supervision trees of the run's processes, those with the latest records first. */
  readonly trees: readonly SupervisionTree[]
  /** Latest fact, alarms left out; and the latest record of all. */
  readonly lastFact: LastEvent | null
  readonly last: LastEvent | null
}

/** Circumstances of a question, which no log holds. */
export interface Circumstances {
  /** Time of the question, ms since 1970. */
  readonly now: number
  /** Standing of each process, by the id of its supervision tree. */
  readonly standings: ReadonlyMap<string, ProcessStanding>
}

export const turnKey = (trajectory: TrajectoryId, turn: number, attempt: number): string =>
  `${trajectory}#${turn}#${attempt}`
