/**
 * Commands: requests of one actor to another, and the telemetry of engines, executors and actors. The coordinator's and
 * the scheduler's requests follow from facts, so the bus may drop them after a while (`log.commandRetentionMs`, 24 h by
 * default): when an actor rebuilds its state from the facts, it sends each request that has no answer again. A request
 * for a turn, a tool call or a reward carries an attempt, which its answer repeats. Each interface names sender,
 * receiver and topic.
 */
import type { EnvironmentAt } from './facts/files'
import type { Sampling, Task } from './facts/request'
import type { ControlOrder, ToolEnvironment } from './facts/run'
import type { Outcome } from './facts/trajectory'
import type { EngineId, Epoch, ExecutorId, PolicyVersion, TrajectoryId } from './ids'

/** Coordinator (agents' calls: gateway) → scheduler (`turns`): generate one turn; the scheduler picks the engine. */
export interface GenerateTurn {
  readonly type: 'turn.generate'
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly attempt: number
  readonly epoch: Epoch
  /**
   * Preferred engine: that of the trajectory's latest generation (in an agent's call: of the call that it continues),
   * which may hold the KV cache; null if there is none, or if it was interrupted for another reason than `aborted`.
   */
  readonly engine: EngineId | null
  readonly seed: number
  readonly sampling: Sampling
  /**
   * Upper bound on the tokens to sample in this attempt; tokens that interrupted attempts of the turn sampled are
   * already subtracted.
   */
  readonly maxTokens: number
  /** [n] token ids of everything before the turn, then those that interrupted attempts of this turn had sampled. */
  readonly context: Int32Array
  /** Number of tokens at the end of `context` that interrupted attempts of this turn had sampled. */
  readonly resumedTokens: number
  /** Tokens of the prompt that the group shares; an engine with prefix sharing stores its KV once. 0 in agent calls. */
  readonly promptTokens: number
  /**
   * Upper bound on the tokens of the context after this attempt, from the rollout's budget; at the bound the rollout is
   * truncated.
   */
  readonly boundTokens: number
  /** Start order of the trajectory; smaller is older. */
  readonly order: number
  /** Oldest policy version that may sample the turn. */
  readonly minVersion: PolicyVersion
}

/** Coordinator → scheduler (`turns`): the trajectory ended; engines may drop its KV. */
export interface ReleaseTrajectory {
  readonly type: 'trajectory.release'
  readonly trajectory: TrajectoryId
  /**
   * Outcome of the rollout. The length of a failed one is left out of length estimates; an absent outcome counts as not
   * failed.
   */
  readonly outcome?: Outcome
}

/** Scheduler → inference (`assignments`): generate the turn on this engine. */
export interface AssignTurn {
  readonly type: 'turn.assign'
  readonly engine: EngineId
  readonly ask: GenerateTurn
}

/** Scheduler → inference (`assignments`): drop the trajectory's KV and abort its running request. */
export interface EvictTrajectory {
  readonly type: 'trajectory.evict'
  readonly engine: EngineId
  readonly trajectory: TrajectoryId
}

/**
 * Coordinator → dispatcher (`tool-calls`): run one tool call. In a run without a dispatcher, executors (`toolExecutor`)
 * read the command themselves.
 */
export interface ExecuteTool {
  readonly type: 'tool.execute'
  readonly trajectory: TrajectoryId
  readonly turn: number
  readonly call: number
  readonly attempt: number
  readonly epoch: Epoch
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** Wall-clock deadline of the tool call, ms. */
  readonly timeoutMs: number
  /** Upper bound on the characters of the result that the model sees, the mark of a cut not counted. */
  readonly responseChars: number
  /** Code of each earlier notebook cell of the trajectory, in order; absent unless `tool` is the notebook. */
  readonly cells?: readonly string[]
  /** Files that the call finds; absent for tools that act in no environment. */
  readonly environment?: EnvironmentAt
}

/**
 * Coordinator → dispatcher (`tool-calls`): the trajectory ended; drop those of its calls that are assigned to no
 * executor.
 */
export interface CancelTools {
  readonly type: 'tool.cancel'
  readonly trajectory: TrajectoryId
}

/**
 * Dispatcher → tool executor (`inboxes`): run these calls. A call that the executor does not report as held in
 * `executor.slots` before its lease ends is assigned again, to any executor; at once if the executor is leaving.
 */
export interface AssignTools {
  readonly type: 'tools.assign'
  readonly executor: ExecutorId
  /** `incarnation` of the `executor.slots` message that offered the slots. */
  readonly incarnation: string
  /** Tool calls to run, 1 to 64. */
  readonly calls: readonly ExecuteTool[]
}

/**
 * Tool executor → dispatcher (`tool-calls`), by default once a second: the executor's slots. The message also renews
 * the lease of each call in `held`.
 */
export interface OfferSlots {
  readonly type: 'executor.slots'
  readonly executor: ExecutorId
  /** Id of this start of the executor; every start has another one. */
  readonly incarnation: string
  /**
   * Number of calls that may be assigned to the executor at once, held ones included; 0: the executor takes no more and
   * is leaving.
   */
  readonly slots: number
  /** Names of the tools that the executor runs. */
  readonly tools: readonly string[]
  /** Keys `group/member#turn#call#attempt` of the calls that the executor runs or is about to run. */
  readonly held: readonly string[]
  /**
   * Isolation level of the executor's sandbox, and the interpreter and packages that its programs run with. Set only by
   * an executor that joined a judge (a Code-Judge server).
   */
  readonly sandbox?: SandboxOffer
}

export interface SandboxOffer extends ToolEnvironment {
  readonly level: 'full' | 'degraded' | 'none'
}

/** Tool executor → dispatcher (`tool-calls`): these calls have ended, answered or aborted, and their slots are free. */
export interface EndTools {
  readonly type: 'tools.ended'
  readonly executor: ExecutorId
  readonly incarnation: string
  readonly slots: number
  /** Keys of the ended tool calls, `group/member#turn#call#attempt`. */
  readonly calls: readonly string[]
}

/** Dispatcher of a judge → tool executor (`inboxes`): end these calls, whose answers nobody waits for. */
export interface AbortTools {
  readonly type: 'tools.abort'
  readonly executor: ExecutorId
  readonly incarnation: string
  /** Keys of the tool calls, `group/member#turn#call#attempt`. */
  readonly calls: readonly string[]
}

/** Dispatcher of a judge → tool executor (`inboxes`): the executor may not join; it gets no calls, and ends. */
export interface RefuseExecutor {
  readonly type: 'executor.refused'
  readonly executor: ExecutorId
  readonly incarnation: string
  readonly reason: string
}

/** Tool executor → front (HTTP server) of a judge (`inboxes`): how the program of one submission ended. */
export interface EndCode {
  readonly type: 'code.ended'
  /** Name of the front's inbox, as the call's arguments give it. */
  readonly front: string
  /** Key of the call, `group/member#turn#call#attempt`. */
  readonly call: string
  /** RunResult that the sandbox returned; stdout and stderr are bytes, not text. */
  readonly result: Readonly<Record<string, unknown>>
}

/** Coordinator → verifier (`verifications`): judge the answer of a finished rollout. */
export interface VerifyAnswer {
  readonly type: 'answer.verify'
  readonly trajectory: TrajectoryId
  readonly attempt: number
  /** Name of the reward that judges the answer; empty: the recipe's `reward.name`. */
  readonly reward: string
  /** Reference answer that the verifier compares with. */
  readonly truth: string
  /** Texts to judge, joined by newlines: of the model's turns or, if an agent drove them, of its own conversation. */
  readonly response: string
  /** The whole task, for rewards that need more than the reference answer. */
  readonly task?: Task
  /** Files that the rollout left; absent for a task without an environment. */
  readonly environment?: EnvironmentAt
}

/**
 * A person → the learner's process (`control`): pause, resume, drain or abort the run. The process records the order as
 * the fact `control.obeyed`, which every role reads: the command may expire, the fact stays.
 */
export interface ControlRun {
  readonly type: 'run.control'
  readonly at: number
  /** Unique id, so that an order that arrives twice is obeyed once. */
  readonly id: string
  readonly order: ControlOrder
  readonly reason: string
}

/** Inference → readers of telemetry (`telemetry`), once a second for each engine: its load, and its totals so far. */
export interface EngineStatus {
  readonly type: 'engine.status'
  readonly at: number
  readonly engine: EngineId
  readonly version: PolicyVersion
  /** Capacity of the KV cache, in tokens. */
  readonly kvTokens: number
  /** KV tokens that requests on the engine refer to. */
  readonly referencedTokens: number
  /** KV tokens that are kept only for a later turn, and may be evicted; 0 from an engine that does not report them. */
  readonly cachedTokens: number
  /** Number of requests that run on the engine. */
  readonly running: number
  /** Number of requests that wait on the engine. */
  readonly waiting: number
  /**
   * Tokens sampled since the engine's start; on an SGLang or OpenAI-compatible server, those that this process
   * requested since it connected. `prefilledTokens` and `preemptions` are totals over the same time.
   */
  readonly generatedTokens: number
  /** Context tokens that were computed, not found in the KV cache; all context tokens if an engine reports no cache. */
  readonly prefilledTokens: number
  /**
   * Number of times that the engine dropped the KV of a running request, to compute it again later; 0 if the engine
   * does not report it.
   */
  readonly preemptions: number
  /** Milliseconds during which at least one request ran; on a server, only requests of this process count. */
  readonly busyMs: number
  /** CPU time of a local engine's process, ms; 0 from any other engine. */
  readonly cpuMs: number
  /** Peak memory of a local engine's process, bytes; 0 from any other engine. */
  readonly maxRssBytes: number
}

/**
 * Scheduler → readers of telemetry (`telemetry`): error of the scheduler's KV ledger against an engine's latest status.
 */
export interface LedgerStatus {
  readonly type: 'ledger.status'
  readonly at: number
  readonly engine: EngineId
  /** Error of the ledger in tokens: the engine's `referencedTokens` less the ledger's estimate. */
  readonly driftTokens: number
  /**
   * Tokens in the engine's `referencedTokens` beyond the lengths that its running trajectories are expected to reach; 0
   * if there are none. They must belong to requests of other clients.
   */
  readonly foreignTokens: number
}

/** Message of the `telemetry` topic about one engine, sent about once a second. */
export type EngineTelemetry = EngineStatus | LedgerStatus

/**
 * Supervision tree → readers of telemetry (`telemetry`): the state of one actor of a run's tree, when it has changed.
 */
export interface ActorStatus {
  readonly type: 'actor.status'
  readonly at: number
  /** Path of actor names from the tree's root: `root/inference/local-0`. */
  readonly actor: string
  /**
   * Kind of actor: supervisor, process (owns an outside process), behaviour (runs over the log), or actor (any other).
   */
  readonly kind: string
  /**
   * State of the actor. given-up: the actor ended because its restarts were used up, or with an error that no restart
   * can help. resting: the same, but the actor is started again later; its siblings do its work meanwhile.
   */
  readonly state: 'starting' | 'up' | 'restarting' | 'resting' | 'given-up' | 'stopped'
  /** Number of restarts of the actor since the tree began. */
  readonly restarts: number
  /** Message of the actor's latest failure. */
  readonly reason?: string
  /** Names of the GPUs that the actor's process has leased; absent: none. */
  readonly devices?: readonly string[]
  /** Id of the supervision tree: one per process. `host` and `pid` name that process. */
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
  | AbortTools
  | RefuseExecutor
  | EndCode
  | VerifyAnswer
  | ControlRun
  | EngineStatus
  | LedgerStatus
  | ActorStatus
