/**
 * A behaviour: what an actor is, without any plumbing (DESIGN §3).
 *
 * in   facts, as they come off the log, and inputs (commands for it, ticks)     out  facts to append, commands to send
 * Invariant: state changes only through `evolve`, and only by facts in the log's order; so the refold of any prefix of a
 * history is the state that the live actor had there. `decide` is given the state *after* the input, when it is a fact,
 * and `undefined` for `before` when the fact was ignored.
 */
import type { Command } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import type { Effects } from '../effects'

/** Where a record stood, and the epoch of its partition. */
export interface Origin {
  readonly topic: string
  readonly partition: number
  readonly offset: number
}

export interface Tick {
  readonly type: 'tick'
}

export interface Decision {
  readonly facts: readonly Fact[]
  readonly commands: readonly Command[]
}

export const nothing: Decision = { facts: [], commands: [] }

/**
 * S: the state; F: facts that it folds; I: commands it is sent; R: requests to ports of its own process (an engine, the
 * renderer), answered by facts or inputs.
 */
export interface Behaviour<S, I = never, R = never> {
  readonly name: string
  initial(): S
  /** Folds one fact. Returns the same object when the fact is not of interest, or not accepted. */
  evolve(state: S, fact: Fact, origin: Origin): S
  /**
   * What to do about an input. A fact that `evolve` did not accept never gets here. Left out by a behaviour that decides by
   * its state alone: then `pending` is asked when the state has moved and everything that it said itself is folded.
   */
  decide?(state: S, input: Fact | I | Tick, fx: Effects): Decision & { readonly requests?: readonly R[] }
  /** A fold begins behind requests that it does not see: none with a start order up to `highestOrder` is a new one. */
  asked?(state: S, highestOrder: number): S
  /** After a refold: what was asked and has no answer. */
  pending(state: S, fx: Effects): Decision & { readonly requests?: readonly R[] }
}

/** A behaviour that decides about every input. */
export interface Reactive<S, I = never, R = never> extends Behaviour<S, I, R> {
  decide: NonNullable<Behaviour<S, I, R>['decide']>
}
