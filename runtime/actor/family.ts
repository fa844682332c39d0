/**
 * The children of an actor, or of a system.
 *
 * Invariant: no two have one name. Their number has no bound here: nactTree.ts nests nact's actors by itself. What is
 * many and short-lived (rollouts, requests) stays state in one actor all the same.
 */
import { actorError } from './actorError'
import type { ActorRef, StopOptions } from './spec'

const nameable = /^[A-Za-z0-9][A-Za-z0-9._-]*$/

export class Family {
  readonly #members = new Map<string, Pick<ActorRef<never>, 'ended' | 'stop'>>()

  constructor(readonly path: string) {}

  /** Adds what `make` makes, until it ends. */
  add<M>(name: string, make: () => ActorRef<M>): ActorRef<M> {
    if (!nameable.test(name)) {
      const hint = 'use letters, digits, dots, dashes and underscores'
      throw actorError('actor.bad_name', this.path, `cannot have a child named '${name}'`, { hint })
    }
    if (this.#members.has(name)) {
      throw actorError('actor.name_taken', this.path, `has a child named '${name}' already`)
    }
    const member = make()
    this.#members.set(name, member)
    void member.ended.then(() => this.#members.delete(name))
    return member
  }

  /** Stops all, the youngest first. Returns the faults; everything has ended all the same. */
  async stop(options: StopOptions): Promise<unknown[]> {
    const faults: unknown[] = []
    for (const member of [...this.#members.values()].reverse()) {
      await member.stop(options).catch(error => faults.push(error))
    }
    return faults
  }
}
