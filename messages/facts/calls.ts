/**
 * Facts of a captured session: a rollout whose turns another program's agent asks for, through the gateway. They lie in
 * the topic `trajectories`, beside the `rollout.requested`, `reward.assigned` and `rollout.finished` of the same
 * rollout.
 *
 * A session is opened once for each agent that works on the rollout; each opening has its own key, valid until the next
 * opening. Calls are numbered from 0 in the session, across its openings. A call continues the recorded tokens of its
 * `parent` (an earlier call), so the log holds each token once: a call's context is the parent's context, the parent's
 * sampled tokens, then its own `tokens`.
 */
import type { EngineId, TrajectoryId } from '../ids'
import type { Sampling } from './request'
import type { PolicySegment, TurnTiming } from './trajectory'

/** An agent got access to a rollout. From here on, calls of earlier openings of the session do not count. */
export interface SessionOpened {
  readonly type: 'session.opened'
  readonly at: number
  readonly trajectory: TrajectoryId
  /** 0 for the first opening; each further one adds 1. */
  readonly opening: number
  /** sha256 of the key, hex. The key itself is in no fact. */
  readonly keyDigest: string
  /** Time at which the session ends by itself, ms since 1970. */
  readonly expiresAt: number
  /** Session whose agent started this session; absent if no other session's agent did. */
  readonly parent?: TrajectoryId
}

/** HTTP interface that a call came through. */
export type Dialect = 'chat' | 'completions' | 'responses' | 'messages'

/**
 * Use of a call in its session. main: the agent's own conversation. subagent: one that the agent started beside it.
 * compaction: the conversation after its history was replaced by a summary. aux: titles, test calls, token counts.
 */
export type CallLabel = 'main' | 'subagent' | 'compaction' | 'aux'

/** Reason why a call does not simply continue the conversation that was recorded last. */
export type BranchReason =
  | 'first'
  | 'sample'
  | 'rewound'
  | 'answer-edited'
  | 'thinking-stripped'
  | 'tool-result-edited'
  | 'message-edited'
  | 'system-changed'
  | 'tools-changed'
  | 'compaction'
  | 'new-conversation'
  | 'template'

/**
 * The gateway accepted a call and asks an engine. Attempts of a call are numbered from 0; only the latest one counts.
 */
export interface CallStarted {
  readonly type: 'call.started'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly opening: number
  readonly call: number
  readonly attempt: number
  readonly dialect: Dialect
  /** Model that the client named. */
  readonly model: string
  readonly label: CallLabel
  /** Earlier call whose tokens this one continues; null if its context begins anew. */
  readonly parent: number | null
  /** Reason of the branch; null if the call is the first that continues its parent. */
  readonly branch: BranchReason | null
  /** Digest of the request in canonical form: equal for a request and the client's retry of it. */
  readonly digest: string
  /** Canonical messages after those of the parent and its answer, as JSON. */
  readonly messages: string
  /**
   * Schemas of the tools that the client offered, as JSON; '' if the call has a parent, which offered the same tools.
   */
  readonly tools: string
  /** [n] context tokens after the parent's sampled tokens. */
  readonly tokens: Int32Array
  /** Number of tokens of the whole context. */
  readonly contextTokens: number
  readonly sampling: Sampling
  readonly seed: number
  readonly maxTokens: number
  /**
   * Sampling parameters that the client sent, by name. The engine gets the temperature and top_p among them only in an
   * evaluation session of a gateway outside a run; in any other session, the rollout's own parameters apply.
   */
  readonly asked: Readonly<Record<string, unknown>>
  /** True if the context ends with the opening tag of the model's thinking, which the chat template wrote. */
  readonly opensThinking?: boolean
  /** In a fork: the call that this one copies, where a client first got its answer. Absent: the call is no copy. */
  readonly copyOf?: { readonly trajectory: TrajectoryId; readonly call: number }
}

/**
 * A call ended. The fact answers the `call.started` of the same attempt, and is durable before the client gets the end
 * of the answer.
 */
export interface CallFinished {
  readonly type: 'call.finished'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly call: number
  readonly attempt: number
  /** Engine that generated the answer; `none` if the call failed. */
  readonly engine: EngineId
  /** [n] token ids as sampled, never re-tokenised. */
  readonly tokens: Int32Array
  /** [n] natural-log probability of each token, under the distribution that it was sampled from. */
  readonly logprobs: Float32Array
  /** [n] entropy in nats of the distribution each token was drawn from; absent unless the engine was asked for it. */
  readonly entropies?: Float32Array
  /** Text of the answer, with its special tokens. */
  readonly text: string
  /**
   * Way in which the call ended. failed: it has no answer (an engine's fault, the deadline, the end of the agent or the
   * gateway); nothing of the call is trained on, and no other call continues it.
   */
  readonly finish: 'stop' | 'length' | 'failed'
  /** Message of the error for which the call failed; empty if it did not fail. */
  readonly error: string
  readonly segments: readonly PolicySegment[]
  readonly cachedTokens: number
  readonly preemptions: number
  readonly timing: TurnTiming
}

/**
 * Says whether the client got the answer of a call. delivered: false if every connection that waited for the answer was
 * lost before its last byte; true if a retry of the client got the answer later. A call without this fact was
 * delivered. A call that was not delivered is trained on only if another call continues it.
 */
export interface CallDelivered {
  readonly type: 'call.delivered'
  readonly at: number
  readonly trajectory: TrajectoryId
  readonly call: number
  readonly delivered: boolean
}

export type CallFact = SessionOpened | CallStarted | CallFinished | CallDelivered
