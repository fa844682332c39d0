/**
 * A behaviour: the protocol of an actor as pure functions, without any plumbing (DESIGN §3). The host runs it.
 *
 * in   facts, in the log's order, and inputs (commands for it, ticks)     out  facts to append, commands to send, requests
 * Invariant: the state changes only through `evolve`, only by facts, in the log's order. So the refold of any prefix of a
 * history equals the state that the live actor had there. `decide` gets the state after the fact was folded.
 */
import type { Command } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import type { Effects } from '../effects'

/** Place of a record in the log. */
export interface Origin {
  readonly topic: string
  readonly partition: number
  readonly offset: number
}

/** Input at regular intervals, for deadlines. */
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
 * S: the state. I: commands that it receives. R: requests to ports of its own process (an engine, the renderer); their
 * answers are facts or inputs.
 */
export interface Behaviour<S, I = never, R = never> {
  readonly name: string
  initial(): S
  /** Folds one fact. Returns the same object for a fact that does not concern it or does not count. */
  evolve(state: S, fact: Fact, origin: Origin): S
  /**
   * Decides about an input. It is not called for a fact that `evolve` ignored. A behaviour that decides by its state alone
   * has no `decide`: then `pending` is called when the state has changed and all its own facts are folded.
   */
  decide?(state: S, input: Fact | I | Tick, fx: Effects): Decision & { readonly requests?: readonly R[] }
  /** Tells a fold that begins in the middle of a partition: requests with a start order up to `highestOrder` were made before. */
  asked?(state: S, highestOrder: number): S
  /** After a refold: the messages and requests that have no answer yet. */
  pending(state: S, fx: Effects): Decision & { readonly requests?: readonly R[] }
}

/** A behaviour with `decide`. */
export interface Reactive<S, I = never, R = never> extends Behaviour<S, I, R> {
  decide: NonNullable<Behaviour<S, I, R>['decide']>
}
