/**
 * Evidence: everything that a log says about who owes which answer, as data.
 *
 * Made by `gatherEvidence` from the log's entries and read by `explain`; both are pure, so the same log and the same
 * `Circumstances` give the same answer on any machine. Only `Circumstances` come from outside the log: the clock, and
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
  StageProgressed,
  StepStarted,
  TurnCompleted,
  TurnInterrupted,
} from '../../messages/facts'
import type { EngineId, ExecutorId, GroupId, TrajectoryId } from '../../messages/ids'
import type { Place } from '../log/place'
import type { ProcessStanding } from '../log/processStanding'
import type { SupervisionTree } from '../log/supervisionTrees'

/** A record of the log: its type, the time of its writing (ms since 1970), and its position. */
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
  /** Latest fact that changed the rollout's state. */
  readonly last: LastEvent
  /** Latest `turn.asked` of the current turn; null before the first. */
  readonly asked: LastEvent | null
  /** Latest `tool.asked` of each call of the current turn, by the call's index. */
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
  /** `engine.left` with its reason; null while the engine takes part. */
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
  /** Scheduler's assignment (`turn.assign`) of each attempt at a turn, by `group/member#turn#attempt`. */
  readonly assigned: ReadonlyMap<string, Known<EngineId>>
  /** Latest `ledger.status` about each engine, which the scheduler writes for engines that accept turns. */
  readonly accounts: ReadonlyMap<EngineId, LastEvent>
  /** Command `turn.generate` of each attempt at a turn, by the same key as `assigned`. */
  readonly generated: ReadonlyMap<string, LastEvent>
  /** Dispatcher's assignment (`tools.assign`) of each attempt at a tool call, by `group/member#turn#call#attempt`. */
  readonly dispatched: ReadonlyMap<string, Known<ExecutorId>>
  /** Command `tool.execute` of each attempt at a tool call, by the same key as `dispatched`. */
  readonly executed: ReadonlyMap<string, LastEvent>
  readonly verifications: ReadonlyMap<TrajectoryId, LastEvent>
  /** Latest sign of life of the scheduler: its claim, its `ledger.status`, or an assignment. */
  readonly scheduler: LastEvent | null
  /** Latest assignment of tool calls by the dispatcher (`tools.assign`). */
  readonly dispatcher: LastEvent | null
  /** Latest `reward.assigned` or `reward.failed`. */
  readonly verifier: LastEvent | null
  /** Latest claim of each partition, with the owner's name. */
  readonly owners: ReadonlyMap<number, Known<string>>
  /** Latest claim of the learner, with the owner's name. */
  readonly learner: Known<string> | null
  /** Newest published policy version. */
  readonly published: Known<number> | null
  /** Latest progress of the cold start. */
  readonly progress: Known<StageProgressed> | null
  /** Latest record of a step, of progress, of published weights or of a checkpoint. */
  readonly trainer: LastEvent | null
  /** Number of the latest step that was completed or rejected; 0 before the first. */
  readonly done: number
  /** Step that was started and is neither completed nor rejected. */
  readonly step: Known<StepStarted> | null
  /** Groups drawn for each step after `done`, by step. */
  readonly drawn: ReadonlyMap<number, readonly GroupId[]>
  /** Evaluations that were begun and have no result. */
  readonly evaluations: readonly Known<CurriculumAdvanced>[]
  readonly curriculum: LastEvent | null
  /** Latest alarm of each name. */
  readonly alarms: ReadonlyMap<string, Known<string>>
  /** A person's pause that is in force, with its reason. */
  readonly paused: Known<string> | null
  /** Latest drain or abort that was obeyed, with its reason; null after a resume. */
  readonly ends: Known<string> | null
  /** Supervision trees of the run's processes, those with the latest records first. */
  readonly trees: readonly SupervisionTree[]
  /** Latest fact other than `alarm.raised`. */
  readonly lastFact: LastEvent | null
  /** Latest record of any kind. */
  readonly last: LastEvent | null
}

/** Circumstances of a question, which no log holds. */
export interface Circumstances {
  /** Time of the question, ms since 1970. */
  readonly now: number
  /** Standing of each process (running, stopped, gone, on another host), by the id of its supervision tree. */
  readonly standings: ReadonlyMap<string, ProcessStanding>
}

export const turnKey = (trajectory: TrajectoryId, turn: number, attempt: number): string =>
  `${trajectory}#${turn}#${attempt}`
