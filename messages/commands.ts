/**
 * Commands: requests of one actor to another, and the telemetry of engines and executors. A command follows from facts,
 * so it may be lost with its topic's retention: a refold of the facts yields every command that has no answer yet.
 * A command carries the epoch and the attempt, and its answer repeats them. Each interface names sender, receiver, topic.
 */
import type { Sampling, Task } from './facts/request'
import type { Outcome } from './facts/trajectory'
import type { EngineId, Epoch, ExecutorId, PolicyVersion, TrajectoryId } from './ids'

/** Coordinator → scheduler (`turns`): generate one turn, on an engine of the scheduler's choice. */
export interface GenerateTurn {
  readonly type: 'turn.generate'
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly epoch: Epoch
  /** Preferred engine: the one that holds the trajectory's KV cache; null where none is known. */
  readonly engine: EngineId | null
  readonly seed: number
  readonly sampling: Sampling
  /** Most tokens to sample. */
  readonly maxTokens: number
  /** [n] every token before the turn, then the tokens that interrupted attempts of the turn had sampled. */
  readonly context: Int32Array
  /** Number of tokens at the end of `context` that interrupted attempts of this turn had sampled. */
  readonly resumedTokens: number
  /** Length of the group's common prompt; an engine that shares prefixes keeps it once. */
  readonly promptTokens: number
  /** Upper bound on the context before the rollout is out of budget. */
  readonly boundTokens: number
  /** Start order of the trajectory; smaller is older. */
  readonly order: number
  /** Oldest policy that may sample the turn. */
  readonly minVersion: PolicyVersion
}

/** Coordinator → scheduler (`turns`): the trajectory ended; engines may drop its KV. */
export interface ReleaseTrajectory {
  readonly type: 'trajectory.release'
  readonly trajectory: TrajectoryId
  /** The length of a failed trajectory says nothing about the lengths of others. Absent: the trajectory ended by itself. */
  readonly outcome?: Outcome
}

/** Scheduler → inference (`assignments`): generate the turn on this engine. */
export interface AssignTurn {
  readonly type: 'turn.assign'
  readonly engine: EngineId
  readonly ask: GenerateTurn
}

/** Scheduler → inference (`assignments`): drop the trajectory's KV and abort its running requests. */
export interface EvictTrajectory {
  readonly type: 'trajectory.evict'
  readonly engine: EngineId
  readonly trajectory: TrajectoryId
}

/** Coordinator → dispatcher (`tool-calls`): run one tool call. Without a dispatcher, the only executor takes it. */
export interface ExecuteTool {
  readonly type: 'tool.execute'
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly call: number
  readonly attempt: number
  readonly epoch: Epoch
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** Wall clock of the call. */
  readonly timeoutMs: number
  /** Characters of the result that the model sees. */
  readonly responseChars: number
  /** For a notebook: the code of each earlier cell of the trajectory, in order. */
  readonly cells?: readonly string[]
}

/** Coordinator → dispatcher (`tool-calls`): the trajectory ended; drop its waiting calls. */
export interface CancelTools {
  readonly type: 'tool.cancel'
  readonly trajectory: TrajectoryId
}

/** Dispatcher → tool executor (`inboxes`): run these calls. An executor that does not list them in `executor.slots` loses them. */
export interface AssignTools {
  readonly type: 'tools.assign'
  readonly executor: ExecutorId
  /** `incarnation` of the `executor.slots` that offered the slots. */
  readonly incarnation: string
  /** 1 to 64 calls. */
  readonly calls: readonly ExecuteTool[]
}

/** Tool executor → dispatcher (`tool-calls`), one a second: its slots, and a renewal of the lease on the calls that it holds. */
export interface OfferSlots {
  readonly type: 'executor.slots'
  readonly executor: ExecutorId
  /** Unique for each start of an executor. */
  readonly incarnation: string
  /** Calls that the executor takes at once, held ones included; 0: it takes no more and is leaving. */
  readonly slots: number
  /** Names of the tools that it runs. */
  readonly tools: readonly string[]
  /** Keys `group/member#turn#call#attempt` of the calls that it runs or is about to run. */
  readonly held: readonly string[]
}

/** Tool executor → dispatcher (`tool-calls`): these calls have been answered, and their slots are free. */
export interface EndTools {
  readonly type: 'tools.ended'
  readonly executor: ExecutorId
  readonly incarnation: string
  readonly slots: number
  /** Keys, as in `executor.slots`. */
  readonly calls: readonly string[]
}

/** Coordinator → verifier (`verifications`): judge the answer of a finished rollout. */
export interface VerifyAnswer {
  readonly type: 'answer.verify'
  readonly trajectory: TrajectoryId
  readonly attempt: number
  /** Name of the reward in the recipe. */
  readonly reward: string
  /** The right answer. */
  readonly truth: string
  /** Text of the model's turns, joined. */
  readonly response: string
  /** For rewards that need more than the truth. */
  readonly task?: Task
}

/** A person → every role (`control`): pause, resume, drain or abort the run. */
export interface ControlRun {
  readonly type: 'run.control'
  readonly order: 'pause' | 'resume' | 'drain' | 'abort'
  readonly reason: string
}

/** Inference → readers of telemetry (`telemetry`), one a second for each engine. Counts of tokens unless named otherwise. */
export interface EngineStatus {
  readonly type: 'engine.status'
  readonly at: number
  readonly engine: EngineId
  readonly version: PolicyVersion
  /** Capacity of the KV cache. */
  readonly kvTokens: number
  /** KV that a running or waiting request refers to. */
  readonly referencedTokens: number
  /** KV that is kept only for a later turn, and may be evicted. */
  readonly cachedTokens: number
  /** Requests that run, and requests that wait. */
  readonly running: number
  readonly waiting: number
  /** Totals since the engine's start, up to `busyMs`. */
  readonly generatedTokens: number
  readonly prefilledTokens: number
  readonly preemptions: number
  /** Time in which at least one request ran. */
  readonly busyMs: number
  /** CPU time and peak memory of the engine's process; 0 where this machine cannot see the process. */
  readonly cpuMs: number
  readonly maxRssBytes: number
}

/** Scheduler → readers of telemetry (`telemetry`): error of its KV ledger against an engine's latest status. */
export interface LedgerStatus {
  readonly type: 'ledger.status'
  readonly at: number
  readonly engine: EngineId
  /** The engine's `referencedTokens` less the ledger's estimate. */
  readonly driftTokens: number
  /** Part of the drift beyond the bounds of all trajectories on that engine: requests of other clients. */
  readonly foreignTokens: number
}

/** Telemetry about one engine, about once a second. */
export type EngineTelemetry = EngineStatus | LedgerStatus

/** Supervision tree → readers of telemetry (`telemetry`): the state of one actor of a run's tree, when it has changed. */
export interface ActorStatus {
  readonly type: 'actor.status'
  readonly at: number
  /** Names from the tree's root: `root/inference/local-0`. */
  readonly actor: string
  /** supervisor, process (owns an outside process), behaviour (runs over the log), actor. */
  readonly kind: string
  /** given-up: its restarts were used up. resting: given up, and started again later while siblings do its work. */
  readonly state: 'starting' | 'up' | 'restarting' | 'resting' | 'given-up' | 'stopped'
  /** Restarts since the tree began. */
  readonly restarts: number
  /** The latest failure. */
  readonly reason?: string
  /** The tree: no two of a run share the id. Its process, by host name and process id. */
  readonly tree: string
  readonly host: string
  readonly pid: number
}

export type Command =
  | GenerateTurn
  | ReleaseTrajectory
  | AssignTurn
  | EvictTrajectory
  | ExecuteTool
  | CancelTools
  | AssignTools
  | OfferSlots
  | EndTools
  | VerifyAnswer
  | ControlRun
  | EngineStatus
  | LedgerStatus
  | ActorStatus
