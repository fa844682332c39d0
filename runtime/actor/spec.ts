/**
 * The types of runtime/actor/system.ts: what an actor consists of, how others send to it, how it ends.
 * Invariant: an actor's state lives in the closure that `start` returns. Nothing that a handler returns replaces it.
 */
import type { TroupeError } from '../errors'
import type { RestartPolicy } from './restartPolicy'

/**
 * Handles one message. The next message waits until the returned promise has resolved. A throw restarts the actor, or
 * ends it if the error is fatal or restarts are used up.
 */
export type Handler<M> = (message: M) => void | Promise<void>

export type StopReason = 'stopped' | 'restarting' | 'escalated'

export interface ActorSpec<M> {
  /**
   * Name of the actor, unique among its siblings; letters, digits, dots, dashes and underscores, first a letter or
   * digit.
   */
  readonly name: string
  /** Kind of the actor, shown in the supervision tree. Default `actor`. */
  readonly kind?: string
  readonly mailbox: {
    /** Upper bound on the messages that are accepted but not handled yet, including the one being handled. */
    readonly capacity: number
    /**
     * Upper bound on `tell` and `ask` calls that wait for room; more are refused. Default: `capacity`, but at least 64.
     */
    readonly waiting?: number
  }
  /**
   * Builds the state: at the first start and again at every restart (an owner of log partitions rebuilds its state from
   * the log here). No message is handled before `start` has resolved; a throw counts as a failure of the actor.
   */
  start(context: ActorContext): Handler<M> | Promise<Handler<M>>
  /**
   * Runs first when an incarnation (the life between two restarts) ends, while its children still live: stop sending
   * work to them here. `error` is the failure that ended the incarnation; at a stop undefined, or `actor.stop_timeout`
   * if the stop's deadline has passed. Runs only after `start` has resolved.
   */
  beforeStop?(reason: StopReason, error: TroupeError | undefined): void | Promise<void>
  /**
   * Releases what `start` acquired. Runs only after `start` has resolved, and after the children have ended; no message
   * is being handled then, unless the deadline of a stop has passed.
   */
  stop?(reason: StopReason): void | Promise<void>
  /**
   * Deadline of each of the hooks `beforeStop` and `stop`, and of an `ActorRef.stop` call without `deadlineMs`, ms.
   * Default 10,000.
   */
  readonly stopWithinMs?: number
  readonly restart?: Partial<RestartPolicy>
  /**
   * Returns true for an error that a restart cannot repair: the actor then escalates at once. Gets the error that
   * `start` or the handler threw, or that `context.fail` was given, without the actor error around it; for a child that
   * escalated, the cause of the child's error.
   */
  isFatal?(error: unknown): boolean
  /**
   * Receives the error when the actor gives up: its restarts are used up, or `isFatal` returned true. Without this hook
   * the parent actor fails; for a top-level actor the system's `onEscalate` runs.
   */
  onEscalate?(error: TroupeError): void
}

export interface ActorContext {
  /** Path of the actor in the tree: `/system/parent/name`. */
  readonly path: string
  /** Aborts when this incarnation ends, and already when a stop without drain begins. */
  readonly signal: AbortSignal
  /**
   * Adds a child; it ends with this incarnation. The child's escalation fails this actor, unless the child's spec has
   * an `onEscalate`.
   * @throws TroupeError actor.stopped once this incarnation has ended; actor.bad_name, actor.name_taken,
   * actor.bad_capacity
   */
  spawn<C>(spec: ActorSpec<C>): ActorRef<C>
  /** Fails this incarnation from outside a handler, once the message being handled is done. */
  fail(error: Error): void
}

export interface TellOptions {
  /** Upper bound on the wait for room in the mailbox, ms. Default 30 s. */
  readonly deadlineMs?: number
  readonly signal?: AbortSignal
}

export interface AskOptions {
  /** Upper bound on the wait for the answer, ms, the wait for room included. */
  readonly deadlineMs: number
  readonly signal?: AbortSignal
}

/** Reply address inside a message; the handling actor answers here, at once or later. Only the first answer counts. */
export interface Reply<R> {
  /** Number of the question, ascending within the process. */
  readonly id: number
  answer(value: R): void
  /** Rejects the caller's promise with this error. */
  fail(error: unknown): void
}

export interface StopOptions {
  /** true: handles the queued messages first; false: they become dead letters. Default false. */
  readonly drain?: boolean
  /**
   * Upper bound on the wait for the running handler (and, with `drain`, for the queued messages), ms. Default: the
   * spec's `stopWithinMs`.
   */
  readonly deadlineMs?: number
}

/** A handle on an actor. It stays valid across restarts. */
export interface ActorRef<M> {
  readonly path: string
  /** Number of messages accepted and not yet handled. */
  readonly depth: number
  /** Resolves at the first successful start; rejects when the actor ended before a successful start. */
  readonly started: Promise<void>
  /**
   * Resolves when the actor has ended: with the error if it escalated or was cut off at a stop's deadline, else with
   * undefined.
   */
  readonly ended: Promise<TroupeError | undefined>
  /**
   * Accepts the message. Returns false when there is no room, when senders already wait for room, or when the actor is
   * stopping or has ended.
   */
  tryTell(message: M): boolean
  /**
   * Resolves when the mailbox has accepted the message. Rejects with `actor.stopped`; `actor.overloaded` when too many
   * senders wait for room already; `actor.tell_timeout` when the deadline passes; `actor.aborted`.
   */
  tell(message: M, options?: TellOptions): Promise<void>
  /**
   * Sends a message that carries a Reply, and resolves with the answer. Rejects as `tell` does; with
   * `actor.ask_timeout` when the deadline passes; with the error that the handler passed to `fail`; with
   * `actor.handler_failed` (cause: the thrown error) when the actor has crashed on the message `attemptsPerMessage`
   * times, or has crashed on it at least once and then the deadline passes or the actor ends. A queued question whose
   * caller has given up is not handled.
   */
  ask<R>(make: (reply: Reply<R>) => M, options: AskOptions): Promise<R>
  /**
   * Waits for the running handler (with `drain`, for the queued messages too), then ends the actor. Rejects with
   * `actor.stop_timeout` if the deadline passes first; the actor has ended in this case too.
   */
  stop(options?: StopOptions): Promise<void>
}

/** A message that was not handled, with the reason. */
export interface DeadLetter {
  readonly actor: string
  readonly message: unknown
  /**
   * Reason. crashed: the actor crashed on the message `attemptsPerMessage` times, or once while it was stopping without
   * drain. stopped: the actor ended before it handled the message, or the message was sent after the actor had begun to
   * stop.
   */
  readonly reason: 'crashed' | 'stopped'
  readonly error: TroupeError
}

/** A change of state in an actor's life. */
export interface ActorLife {
  readonly path: string
  readonly kind: string
  /** New state. given-up: the actor has escalated (restarts used up, or a fatal error) and ended. */
  readonly state: 'starting' | 'up' | 'restarting' | 'given-up' | 'stopped'
  /** Number of restarts since the actor was spawned. */
  readonly restarts: number
  /** The actor's latest failure; undefined when it had none. */
  readonly error: TroupeError | undefined
}
