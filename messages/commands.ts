/**
 * Commands: what one actor asks of another. They may be lost with their topic's retention, because every one follows
 * from facts: a refold yields those that have no answer yet. Each carries the epoch and the attempt that its answer echoes.
 */

import type { Sampling, Task } from './facts/request'
import type { Outcome } from './facts/trajectory'
import type { EngineId, Epoch, ExecutorId, PolicyVersion, TrajectoryId } from './ids'

/** Coordinator → scheduler (`turns`): generate one turn somewhere. */
export interface GenerateTurn {
  readonly type: 'turn.generate'
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly epoch: Epoch
  readonly engine: EngineId | null
  readonly seed: number
  readonly sampling: Sampling
  readonly maxTokens: number
  /** [n] everything before the turn, and what an interrupted attempt of it had sampled. */
  readonly context: Int32Array
  /** How many tokens at the end of `context` are this turn's own, from interrupted attempts. */
  readonly resumedTokens: number
  /** Length of the group's common prompt: engines that share prefixes hold it once. */
  readonly promptTokens: number
  /** What the context may grow to before the rollout is out of budget, tokens. */
  readonly boundTokens: number
  /** Start order of the trajectory; smaller is older. */
  readonly order: number
  readonly minVersion: PolicyVersion
}

/** Coordinator → scheduler (`turns`): the trajectory ended; its KV may go. */
export interface ReleaseTrajectory {
  readonly type: 'trajectory.release'
  readonly trajectory: TrajectoryId
  /** Of one that failed the length says nothing about others. Without, it ended by itself. */
  readonly outcome?: Outcome
}

/** Scheduler → inference (`assignments`): generate it on this engine. */
export interface AssignTurn {
  readonly type: 'turn.assign'
  readonly engine: EngineId
  readonly ask: GenerateTurn
}

/** Scheduler → inference (`assignments`): drop a trajectory's KV, abort what still runs of it. */
export interface EvictTrajectory {
  readonly type: 'trajectory.evict'
  readonly engine: EngineId
  readonly trajectory: TrajectoryId
}

/** Coordinator → dispatcher (`tool-calls`), or to the only executor where there is no dispatcher. */
export interface ExecuteTool {
  readonly type: 'tool.execute'
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly call: number
  readonly attempt: number
  readonly epoch: Epoch
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly timeoutMs: number
  /** Characters of the answer that the model sees. */
  readonly responseChars: number
  /** Of a notebook: the codes of the trajectory's cells before this one. */
  readonly cells?: readonly string[]
}

/** Coordinator → dispatcher (`tool-calls`): the trajectory ended; its calls that wait need not be made. */
export interface CancelTools {
  readonly type: 'tool.cancel'
  readonly trajectory: TrajectoryId
}

/** Dispatcher → tool executor (`inboxes`): make these calls. Whoever does not say that it holds them loses them. */
export interface AssignTools {
  readonly type: 'tools.assign'
  readonly executor: ExecutorId
  /** The start of the executor that has offered the slots. */
  readonly incarnation: string
  /** 1 to 64. */
  readonly calls: readonly ExecuteTool[]
}

/** Tool executor → dispatcher (`tool-calls`), one a second: what it offers, and the lease of what it holds. */
export interface OfferSlots {
  readonly type: 'executor.slots'
  readonly executor: ExecutorId
  /** A name that no other start of an executor has. */
  readonly incarnation: string
  /** Calls that it takes at once, those that it holds included; 0: it takes no more and is leaving. */
  readonly slots: number
  readonly tools: readonly string[]
  /** Calls that it runs or is about to run, by their keys `group/member#turn#call#attempt`. */
  readonly held: readonly string[]
}

/** Tool executor → dispatcher (`tool-calls`): these calls are answered, their slots are free. */
export interface EndTools {
  readonly type: 'tools.ended'
  readonly executor: ExecutorId
  readonly incarnation: string
  readonly slots: number
  readonly calls: readonly string[]
}

/** Coordinator → verifier (`verifications`). */
export interface VerifyAnswer {
  readonly type: 'answer.verify'
  readonly trajectory: TrajectoryId
  readonly attempt: number
  /** Name of the recipe's reward. */
  readonly reward: string
  readonly truth: string
  /** Text of the model's turns, joined. */
  readonly response: string
  /** For rewards that look at more than the truth. */
  readonly task?: Task
}

/** Anyone → everyone (`control`). */
export interface ControlRun {
  readonly type: 'run.control'
  readonly order: 'pause' | 'resume' | 'drain' | 'abort'
  readonly reason: string
}

/** Inference → whoever asks (`telemetry`): one a second and engine. Tokens unless said otherwise. */
export interface EngineStatus {
  readonly type: 'engine.status'
  readonly at: number
  readonly engine: EngineId
  readonly version: PolicyVersion
  readonly kvTokens: number
  /** KV that a running or waiting request refers to. */
  readonly referencedTokens: number
  /** KV that is only kept for a next turn and may be evicted. */
  readonly cachedTokens: number
  readonly running: number
  readonly waiting: number
  readonly generatedTokens: number
  readonly prefilledTokens: number
  readonly preemptions: number
  readonly busyMs: number
  /** CPU time and peak memory of the engine's process; 0 where it is not ours to see. */
  readonly cpuMs: number
  readonly maxRssBytes: number
}

/** Scheduler → whoever asks (`telemetry`): how far its ledger is from what an engine has just said. Tokens. */
export interface LedgerStatus {
  readonly type: 'ledger.status'
  readonly at: number
  readonly engine: EngineId
  /** What the engine says that its requests refer to, less what the ledger has. */
  readonly driftTokens: number
  /** What of it is beyond all that the trajectories that run there may grow to: requests of others. */
  readonly foreignTokens: number
}

/** What is said of an engine, about once a second. */
export type EngineTelemetry = EngineStatus | LedgerStatus

export interface SandboxStatus {
  readonly type: 'sandbox.status'
  readonly at: number
  readonly executor: string
  readonly level: string
  readonly running: number
  readonly queued: number
  readonly calls: number
  readonly failures: number
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
  | SandboxStatus
