/**
 * The vocabulary of runtime/actor/system.ts, as types alone: what an actor is made of, how others talk to it, how it ends.
 * Invariant: an actor's state lives in the closure that `start` returns. Nothing that a handler returns replaces it.
 */
import type { TroupeError } from '../errors'
import type { RestartPolicy } from './restartPolicy'

/** Handles one message. The next one waits until this has resolved. A throw restarts the actor. */
export type Handler<M> = (message: M) => void | Promise<void>

export type StopReason = 'stopped' | 'restarting' | 'escalated'

export interface ActorSpec<M> {
  /** Unique among its siblings; letters, digits and dashes. */
  readonly name: string
  /** The actor's kind, for whoever shows the tree. Default `actor`. */
  readonly kind?: string
  readonly mailbox: {
    /** Upper bound on messages that were accepted and are not handled yet, the one in hand included. */
    readonly capacity: number
    /** Upper bound on `tell` and `ask` calls that wait for room; more are refused. Default: the capacity, at least 64. */
    readonly waiting?: number
  }
  /**
   * Builds the state: at the first start and again at every restart (here the log is refolded). No message is handled
   * before it has resolved; a throw counts as a failure of the actor.
   */
  start(context: ActorContext): Handler<M> | Promise<Handler<M>>
  /**
   * Runs first when an incarnation ends, while its children still live: the place to stop feeding them. `error` is the
   * failure that ended the incarnation. Runs only after `start` has resolved.
   */
  beforeStop?(reason: StopReason, error: TroupeError | undefined): void | Promise<void>
  /** Releases what `start` took. Runs when no message is in hand, unless the stop's deadline has passed. */
  stop?(reason: StopReason): void | Promise<void>
  /** Deadline of each of the two hooks, and of `stop` where the caller gives none, ms. Default 10 s. */
  readonly stopWithinMs?: number
  readonly restart?: Partial<RestartPolicy>
  /** True: no restart can help, and the actor escalates at once. Gets the thrown error, not the one that wraps it. */
  isFatal?(error: unknown): boolean
  /** Receives the error when restarts are used up. Without it the parent fails, at the top the system's `onEscalate` runs. */
  onEscalate?(error: TroupeError): void
}

export interface ActorContext {
  /** `/system/parent/name`. */
  readonly path: string
  /** Aborts when this incarnation should end its work early: at a stop without drain, or when a deadline has passed. */
  readonly signal: AbortSignal
  /**
   * Adds a child; it ends with this incarnation, and its escalation is this actor's failure unless its spec takes it.
   * @throws TroupeError actor.stopped once this incarnation has ended
   */
  spawn<C>(spec: ActorSpec<C>): ActorRef<C>
  /** Fails this incarnation from outside a handler, once the message in hand is handled. */
  fail(error: Error): void
}

export interface TellOptions {
  /** Longest wait for room in the mailbox, ms. Default 30 s. */
  readonly deadlineMs?: number
  readonly signal?: AbortSignal
}

export interface AskOptions {
  /** Longest wait for the answer, ms, the wait for room included. */
  readonly deadlineMs: number
  readonly signal?: AbortSignal
}

/** Travels in a message; the actor that handles it answers here, at once or later. Only the first answer counts. */
export interface Reply<R> {
  /** Counts up within the process. */
  readonly id: number
  answer(value: R): void
  /** Rejects the asker's promise with this error. */
  fail(error: unknown): void
}

export interface StopOptions {
  /** Handle what is in the mailbox first. Without it, queued messages are dead letters. Default false. */
  readonly drain?: boolean
  /** Longest wait for the message in hand (and the mailbox), ms. Default: the spec's `stopWithinMs`, 10 s. */
  readonly deadlineMs?: number
}

/** A handle on an actor. It stays valid across restarts. */
export interface ActorRef<M> {
  readonly path: string
  /** Messages accepted and not yet handled. */
  readonly depth: number
  /** Resolves at the first successful start; rejects when the actor ended before it. */
  readonly started: Promise<void>
  /** Resolves when the actor has ended, with the error when it escalated. */
  readonly ended: Promise<TroupeError | undefined>
  /** Accepts the message, or returns false: no room (or others wait for it), or the actor has ended. */
  tryTell(message: M): boolean
  /** Resolves when there was room. Rejects `actor.stopped`, `actor.overloaded`, `actor.tell_timeout`, `actor.aborted`. */
  tell(message: M, options?: TellOptions): Promise<void>
  /**
   * Sends a message that carries a Reply, resolves with its answer. Rejects as `tell` does, with `actor.ask_timeout`,
   * with what the handler gave to `fail`, or with `actor.handler_failed` (cause: what it threw) when the message crashed
   * the actor. A question that nobody waits for any more is not handled.
   */
  ask<R>(make: (reply: Reply<R>) => M, options: AskOptions): Promise<R>
  /** Waits for the message in hand, then ends. Rejects `actor.stop_timeout` after the deadline; the actor has ended then. */
  stop(options?: StopOptions): Promise<void>
}

/** A message that was not handled, and why. */
export interface DeadLetter {
  readonly actor: string
  readonly message: unknown
  /** crashed: it crashed the actor too often. stopped: the actor ended with it, or had ended before. */
  readonly reason: 'crashed' | 'stopped'
  readonly error: TroupeError
}

/** A change in an actor's life. */
export interface ActorLife {
  readonly path: string
  readonly kind: string
  /** given-up: restarts were used up, and its supervisor was told. */
  readonly state: 'starting' | 'up' | 'restarting' | 'given-up' | 'stopped'
  /** Restarts since the actor was spawned. */
  readonly restarts: number
  /** The latest failure, where there was one. */
  readonly error: TroupeError | undefined
}
