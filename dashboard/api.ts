/**
 * JSON that the dashboard's server sends and its page shows. Types only: the page runs in a browser.
 *
 * This file is longer than 320 lines because server and page share one contract, which a reader wants to see whole.
 * Text of models, tools and tasks is escaped and cut by the server (`ShownText`); the page sets it as text nodes.
 */
import type { OfferedCommand, ShownText } from './apiActions'

/**
 * done, stopped, failed: the outcome in `run.finished`, if the run was not resumed after it. live: no outcome, and a
 * record was written within the last 15 s, or the writer of an lmdb log sends heartbeats. cut-off: neither, as after a
 * crash.
 */
export type RunState = 'live' | 'done' | 'stopped' | 'failed' | 'cut-off'

export interface RunLine {
  readonly run: string
  readonly state: RunState
  readonly recipe: string
  readonly startedAt: number
  readonly lastAt: number
  readonly step: number
  readonly plannedSteps: number | null
  readonly passAt1: number | null
  readonly alarms: number
  /** Reason why the run cannot be shown; of the other fields only `run` then has a meaning. */
  readonly error?: string
}

export type { ShownText }

/** Position in the log, `topic:partition:offset`. */
export type PlaceText = string

export interface StepPoint {
  readonly step: number
  readonly outcome: 'open' | 'completed' | 'rejected'
  readonly at: number | null
  readonly place: PlaceText | null
  readonly version: number | null
  readonly rollouts: number
  readonly seconds: number | null
  /** Measures by name: of the rollouts, of the optimizer update and of the curriculum (`step.tallied`). */
  readonly values: Readonly<Record<string, number | null>>
}

export interface EvaluationPoint {
  readonly step: number
  readonly name: string
  readonly passAt1: number | null
  readonly standardError: number | null
  readonly n: number
}

export interface AlarmLine {
  readonly at: number
  readonly alarm: string
  readonly message: string
  readonly place: PlaceText
  /** Last step that was over when the alarm was raised; 0 before the first. */
  readonly step: number
  /** View of the page that shows the alarm's cause, with its query. */
  readonly link: string
  /** Terminal command that shows the alarm's cause. */
  readonly command: string
}

/** Event in the life of a run, such as its start, an engine that left, an alarm or new weights. */
export interface Mark {
  readonly at: number
  readonly kind: 'started' | 'resumed' | 'finished' | 'engine-left' | 'engine-joined' | 'alarm' | 'stage' | 'weights'
  readonly text: string
  readonly place: PlaceText
}

export interface Overview {
  readonly run: string
  readonly bus: string
  readonly state: RunState
  readonly reason: string
  readonly recipe: string
  readonly recipeDigest: string
  readonly codeDigest: string
  readonly seed: number
  readonly versions: Readonly<Record<string, string>>
  readonly startedAt: number
  readonly lastAt: number
  /** Position of the run's newest record. */
  readonly lastPlace: PlaceText
  readonly plannedSteps: number | null
  readonly step: number
  readonly tokensPerSecond: number | null
  readonly stepsPerHour: number | null
  readonly secondsLeft: number | null
  readonly trajectories: number
  readonly running: number
  readonly records: number
  readonly steps: readonly StepPoint[]
  readonly evaluations: readonly EvaluationPoint[]
  readonly alarms: readonly AlarmLine[]
  readonly marks: readonly Mark[]
  /** Records that could not be read, at most 20. */
  readonly faults: readonly string[]
  /** Cursor at which a stream of facts that continues this state starts; ids of stream events have the same form. */
  readonly cursor: string
  readonly command: string
  readonly commands: readonly OfferedCommand[]
}

export interface TrajectoryLine {
  readonly trajectory: string
  readonly step: number
  readonly purpose: string
  readonly task: string
  readonly status: string
  readonly reason: string
  readonly reward: number | null
  /** True if the reward is above the recipe's `selection.positiveAbove`. */
  readonly positive: boolean
  readonly turns: number
  readonly sampledTokens: number
  readonly toolCalls: number
  readonly toolErrors: number
  readonly versions: readonly number[]
  readonly selection: string | null
  readonly advantage: number | null
  readonly at: number
}

export interface Paged<T> {
  readonly total: number
  readonly offset: number
  readonly rows: readonly T[]
  readonly command: string
}

/** A group in a list: at least one member matches the list's filter. All counts except `matching` cover all members. */
export interface GroupLine {
  readonly group: string
  readonly step: number
  readonly purpose: string
  readonly task: string
  readonly size: number
  /** Number of the members that match the list's filter. */
  readonly matching: number
  readonly rewarded: number
  readonly positives: number
  readonly kept: number
  readonly decision: 'selected' | 'rejected' | 'open'
  readonly toolErrors: number
  readonly sampledTokens: number
}

export interface GroupMember extends TrajectoryLine {
  readonly member: number
  readonly penalty: number | null
  readonly errorPenalty: number | null
  readonly formatPenalty: number | null
  /** Weight in the draw of positives; null for a member that is not drawn by weight. */
  readonly weight: number | null
  readonly answer: ShownText | null
  /** Reason, in a sentence, why the member was kept, dropped or left out. */
  readonly why: string
}

export interface GroupReport {
  readonly group: string
  readonly step: number
  readonly task: string
  readonly prompt: readonly { readonly role: string; readonly content: ShownText }[]
  /** Null for a task without a truth, such as that of a captured session. */
  readonly truth: ShownText | null
  readonly decision: 'selected' | 'whole' | 'rejected' | 'open'
  readonly reason: string
  readonly selection: string
  readonly generator: string
  readonly seed: number
  /** Reason why the draws cannot be explained, such as a recipe that today's schema refuses; else empty. */
  readonly unexplained: string
  /**
   * True if today's code makes the recorded selection again; null while none is recorded, or if `unexplained` is set.
   */
  readonly agrees: boolean | null
  readonly members: readonly GroupMember[]
  /**
   * For each selection (`paper`, …): the group's outcome under it, and the advantages of the members that it would
   * keep.
   */
  readonly variants: Readonly<Record<string, { outcome: string; advantages: Readonly<Record<number, number>> }>>
  readonly command: string
  readonly commands: readonly OfferedCommand[]
}

export type Part =
  | {
      readonly kind: 'turn'
      readonly turn: number
      readonly attempt: number
      readonly text: ShownText
      readonly tokens: number
      readonly finish: string
      readonly engine: string
      readonly versions: readonly number[]
      readonly interrupted: boolean
      readonly queuedMs: number | null
      readonly firstTokenMs: number | null
      readonly generationMs: number | null
      readonly meanLogprob: number | null
      readonly place: PlaceText
      readonly at: number
    }
  | {
      readonly kind: 'call'
      readonly turn: number
      readonly call: number
      readonly tool: string
      readonly arguments: ShownText
      readonly status: string
      readonly text: ShownText
      readonly stderr: ShownText
      readonly exitCode: number | null
      readonly signal: string | null
      readonly wallMs: number
      readonly waitedMs: number | null
      readonly executor: string | null
      /** Files that the call changed in its environment; null if none. */
      readonly files: ShownText | null
      readonly place: PlaceText
      readonly at: number
    }

  /** Call that an agent (a program of its own) made through the gateway. */
  | {
      readonly kind: 'captured'
      readonly call: number
      readonly attempt: number
      /** Call that this one continues; null if this one begins a new context. */
      readonly parent: number | null
      /** Depth in the tree: 0 without a parent; the parent's depth for its first continuation, 1 more for others. */
      readonly depth: number
      readonly label: string
      /** Reason why the call branches off; empty if it simply continues its parent. */
      readonly branch: string
      readonly dialect: string
      readonly model: string
      /** Messages of the call's request that its parent and the parent's answer do not contain. */
      readonly messages: readonly { readonly role: string; readonly content: ShownText }[]
      readonly tokens: number
      readonly contextTokens: number
      readonly answer: ShownText
      readonly finish: string
      readonly answerTokens: number
      readonly cachedTokens: number
      readonly engine: string
      readonly versions: readonly number[]
      readonly generationMs: number | null
      readonly delivered: boolean
      /** False: no token of the call is part of the rollout: the call failed, or its client never got the answer. */
      readonly counts: boolean
      readonly place: PlaceText
      readonly at: number
    }

export interface TrajectoryReport {
  readonly summary: TrajectoryLine
  readonly prompt: readonly { readonly role: string; readonly content: ShownText }[]
  /** Null for a task without a truth, such as that of a captured session. */
  readonly truth: ShownText | null
  readonly answer: ShownText | null
  readonly how: ShownText | null
  readonly why: ShownText | null
  readonly selectionWhy: string
  readonly penalty: number | null
  readonly tools: readonly string[]
  readonly seed: number
  readonly promptTokens: number
  /**
   * Origin of a fork (it continues its parent from a point); null for any other trajectory. `run`: run of the parent.
   * `turn`: number of the first turn or call (as `unit` says) that the fork did not take over from the parent.
   */
  readonly forkOf: {
    readonly parent: string
    readonly run: string
    readonly turn: number
    readonly unit: 'turn' | 'call'
  } | null
  readonly parts: readonly Part[]
  readonly siblings: readonly {
    readonly trajectory: string
    readonly reward: number | null
    readonly positive: boolean
    readonly selection: string | null
  }[]
  readonly command: string
  /** Further commands about this trajectory, with what each does. */
  readonly commands: readonly OfferedCommand[]
}

/** Consecutive tokens of one kind in one turn. Each array has one element for each token. */
export interface TokenSpan {
  readonly kind: 'prompt' | 'sampled' | 'appended'
  readonly turn: number
  readonly ids: readonly number[]
  readonly texts: readonly string[]
  /** Natural-log probability of each token; null for tokens that were not sampled. */
  readonly logprobs: readonly number[] | null
  readonly entropies: readonly number[] | null
  /** Policy version of each token, −1 if the log names none; null for tokens that were not sampled. */
  readonly versions: readonly number[] | null
}

export interface TokenPage {
  readonly total: number
  readonly offset: number
  readonly spans: readonly TokenSpan[]
  /** Advantage that every sampled token of the trajectory is trained with; null: not trained on. */
  readonly advantage: number | null
  readonly command: string
}

export interface EventLine {
  readonly place: PlaceText
  readonly at: number
  readonly type: string
  /**
   * False: its author had lost the partition, or another record counts instead. The list of a partition does not check
   * this: there it is always true.
   */
  readonly counts: boolean
  readonly line: string
  readonly json: ShownText
}

export interface LanePiece {
  readonly kind: 'queue' | 'generation' | 'tool' | 'judge' | 'wait'
  readonly from: number
  readonly to: number
  readonly version: number | null
  readonly bad: boolean
}

export interface Lane {
  readonly trajectory: string
  readonly reward: number | null
  readonly positive: boolean
  readonly status: string
  readonly selection: string | null
  /** Pieces in the order of their starts. Those of a captured session overlap if its agent makes calls in parallel. */
  readonly pieces: readonly LanePiece[]
  /** Time at which the last piece ends; without pieces, the time at which the rollout was requested. */
  readonly endsAt: number
}

export interface Lanes extends Paged<Lane> {
  readonly marks: readonly Mark[]
}

export interface EngineLine {
  readonly engine: string
  readonly kind: string
  readonly model: string
  readonly state: 'up' | 'left' | 'asleep'
  readonly reason: string
  readonly kvTokens: number
  readonly referencedTokens: number | null
  readonly cachedTokens: number | null
  /** KV tokens that the scheduler's ledger expects on the engine. */
  readonly expectedTokens: number | null
  readonly running: number | null
  readonly waiting: number | null
  readonly maxSequences: number
  readonly version: number | null
  readonly tokensPerSecond: number | null
  readonly preemptions: number | null
  readonly at: number | null
}

export interface ActorLine {
  readonly name: string
  readonly kind: string
  readonly state: string
  readonly restarts: number
  readonly reason: string
  readonly devices: readonly string[]
  readonly children: readonly ActorLine[]
}

export interface Cluster {
  readonly engines: readonly EngineLine[]
  readonly executors: readonly {
    readonly executor: string
    readonly slots: number
    readonly held: number
    readonly tools: readonly string[]
    readonly at: number
  }[]
  readonly topics: readonly {
    readonly topic: string
    readonly partition: number
    readonly oldest: number
    readonly next: number
    readonly lastAt: number | null
    /**
     * Number of records that the topic's consumer group has not done yet: those from its committed offset on. null: no
     * offset is committed.
     */
    readonly lag: number | null
  }[]
  readonly trees: readonly {
    readonly tree: string
    readonly host: string
    readonly pid: number
    readonly at: number
    readonly isStopped: boolean
    readonly root: ActorLine
  }[]
  readonly commands: readonly { readonly what: string; readonly command: string }[]
}

/** Explanation of what a run, group or trajectory waits for, as `troupe why` prints it. */
export interface WhyReport {
  /** State of the run's process: running, finished, stopped, crashed or unknown. */
  readonly standing: string
  readonly outcome: string
  readonly waits: readonly WaitLine[]
  /** Number of waits that are left out. */
  readonly more: number
  readonly command: string
}

export interface WaitLine {
  readonly id: string
  readonly for: string
  readonly since: number
  /** Number of waits for the same thing with the same `owes`; this one is the oldest of them. */
  readonly count: number
  /** Name of what owes the answer, such as an actor, an engine, a process or a person. */
  readonly owes: string
  /** State of the actor, engine, process or person that owes the answer. */
  readonly state: string
  readonly chain: readonly {
    readonly name: string
    readonly says: string
    readonly last: string
    readonly place: PlaceText
  }[]
}

export interface StreamFact {
  readonly place: PlaceText
  readonly at: number
  readonly type: string
  /** Trajectory or group that the fact is about; empty for facts of the run. */
  readonly id: string
  readonly line: string
}
