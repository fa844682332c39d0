/**
 * The children of an actor, or of a system.
 *
 * Invariant: at most 64, and no two of one name. nact copies the list of an actor's children for every message it
 * handles (at 1,000 children 30 times slower), so what is many (rollouts, requests) is state in an actor, not an actor.
 */
import { actorError } from './actorError'
import type { ActorRef, StopOptions } from './spec'

const maxChildren = 64

const nameable = /^[A-Za-z0-9][A-Za-z0-9._-]*$/

export class Family {
  readonly #members = new Map<string, Pick<ActorRef<never>, 'ended' | 'stop'>>()

  constructor(readonly path: string) {}

  /** Adds what `make` makes, until it ends. */
  add<M>(name: string, make: () => ActorRef<M>): ActorRef<M> {
    if (!nameable.test(name)) {
      const hint = 'letters, digits, dots, dashes and underscores'
      throw actorError('actor.bad_name', this.path, `cannot have a child named '${name}'`, { hint })
    }
    if (this.#members.has(name)) {
      throw actorError('actor.name_taken', this.path, `has a child named '${name}' already`)
    }
    if (this.#members.size >= maxChildren) {
      const hint = 'keep what is many as state in one actor, or put a level of actors between'
      throw actorError('actor.too_many_children', this.path, `has ${maxChildren} children already`, { hint })
    }
    const member = make()
    this.#members.set(name, member)
    void member.ended.then(() => this.#members.delete(name))
    return member
  }

  /** Stops all, the youngest first. Returns what went wrong; everything has ended all the same. */
  async stop(options: StopOptions): Promise<unknown[]> {
    const faults: unknown[] = []
    for (const member of [...this.#members.values()].reverse()) {
      await member.stop(options).catch(error => faults.push(error))
    }
    return faults
  }
}
