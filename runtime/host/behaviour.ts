/**
 * A behaviour: the protocol of an actor as pure functions, without any plumbing. The host runs it.
 *
 * in   facts, in the log's order, and inputs (commands for it, ticks)
 * out  facts to append, commands to send, requests to ports
 * Invariant: the state changes only by facts, in the log's order, through `evolve`; a fold that begins in the middle of
 * a partition also calls `asked` once, for what was requested before. So the state that a refold rebuilds from any
 * prefix of the log equals the state that the live actor had at that point. `decide` gets the state after `evolve` has
 * folded the fact.
 */
import type { Command } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import type { Effects } from '../effects'

/** Position of a record in the log. */
export interface Origin {
  readonly topic: string
  readonly partition: number
  readonly offset: number
}

/** Input that a behaviour gets at regular intervals, for deadlines. */
export interface Tick {
  readonly type: 'tick'
}

/** Messages that a behaviour decides to append. */
export interface Decision {
  readonly facts: readonly Fact[]
  readonly commands: readonly Command[]
}

export const nothing: Decision = { facts: [], commands: [] }

/**
 * Protocol of an actor. S: the state. I: commands that the behaviour receives. R: its requests to ports of its own
 * process (an engine, the renderer), whose answers are facts or inputs.
 */
export interface Behaviour<S, I = never, R = never> {
  readonly name: string
  initial(): S
  /** Folds one fact into the state. Returns the same object if the behaviour ignores the fact. */
  evolve(state: S, fact: Fact, origin: Origin): S
  /**
   * Decides about an input; not called for a fact that `evolve` ignored. A behaviour that decides by its state alone
   * has no `decide`: instead `pending` is called when the state has changed and all facts that the behaviour appended
   * are folded.
   */
  decide?(state: S, input: Fact | I | Tick, fx: Effects): Decision & { readonly requests?: readonly R[] }
  /**
   * Decides once after a batch of inputs that `decide` was called for one by one. For decisions that are better made
   * about many inputs together.
   */
  settle?(state: S, fx: Effects): Decision
  /**
   * Prepares the state of a fold that begins in the middle of a partition: rollouts with a start order (their number in
   * the order of requests) up to `highestOrder` were requested before.
   */
  asked?(state: S, highestOrder: number): S
  /**
   * Returns the messages and requests that, according to the state, still have no answer. Called after a refold; for a
   * behaviour without `decide` also when its state has changed.
   */
  pending(state: S, fx: Effects): Decision & { readonly requests?: readonly R[] }
}

/** A behaviour that decides about inputs, by `decide`. */
export interface Reactive<S, I = never, R = never> extends Behaviour<S, I, R> {
  decide: NonNullable<Behaviour<S, I, R>['decide']>
}
