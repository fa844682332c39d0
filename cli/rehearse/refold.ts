/**
 * Measures how long the owners of rollouts (the actors that hold rollouts' state) need to rebuild their state after a
 * crash: folds the facts of all rollouts.
 *
 * in   a rehearsal's journal        out  seconds, facts
 * Invariant: the measured time is an upper bound. It covers the facts of all the rehearsal's rollouts; after a crash,
 * an owner folds only the facts from the oldest group that is still open.
 */
import { coordinator } from '../../actors/rollouts/coordinator'
import { grouper } from '../../actors/rollouts/grouper'
import { owner } from '../../actors/rollouts/owner'
import { type RecipeConfig, selectionOf } from '../../config'
import type { Fact } from '../../messages/facts'
import type { Journal } from '../../runtime/journal/journal'

export interface Refolded {
  readonly facts: number
  readonly seconds: number
}

export async function refold(journal: Journal, config: RecipeConfig): Promise<Refolded> {
  const behaviour = owner(
    coordinator({ turnTimeoutMs: config.rollout.turnTimeoutMs }),
    grouper({ runSeed: config.seed, selection: selectionOf(config) }),
  )
  const begun = performance.now()
  let facts = 0
  for (let partition = 0; partition < (await journal.partitionsOf('trajectories')); partition++) {
    let state = behaviour.initial()
    const { oldest, next } = await journal.offsets('trajectories', partition)
    for await (const entries of journal.readTo('trajectories', partition, oldest, next)) {
      for (const { message, ...origin } of entries) {
        state = behaviour.evolve(state, message as Fact, origin)
        facts++
      }
    }
  }
  return { facts, seconds: (performance.now() - begun) / 1000 }
}
