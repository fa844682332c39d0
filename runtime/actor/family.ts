/**
 * The children of an actor, or of an actor system.
 *
 * Invariant: no two children have one name. The number of children is not bounded here: nactTree.ts spreads nact's
 * actors over a tree. Numerous, short-lived things (rollouts, requests) should be state inside one actor all the same.
 */
import { actorError } from './actorError'
import type { ActorRef, StopOptions } from './spec'

const nameable = /^[A-Za-z0-9][A-Za-z0-9._-]*$/

export class Family {
  readonly #members = new Map<string, Pick<ActorRef<never>, 'ended' | 'stop'>>()

  constructor(readonly path: string) {}

  /** Adds the child that `make` creates; removes it when it ends. */
  add<M>(name: string, make: () => ActorRef<M>): ActorRef<M> {
    if (!nameable.test(name)) {
      const hint = 'begin the name with a letter or a digit; the rest may also hold dots, dashes and underscores'
      throw actorError('actor.bad_name', this.path, `cannot have a child named '${name}'`, { hint })
    }
    if (this.#members.has(name)) {
      throw actorError('actor.name_taken', this.path, `already has a child named '${name}'`)
    }
    const member = make()
    this.#members.set(name, member)
    void member.ended.then(() => this.#members.delete(name))
    return member
  }

  /**
   * Stops all children, the youngest first. Returns the errors of the children that did not stop in time; these
   * children have ended too.
   */
  async stop(options: StopOptions): Promise<unknown[]> {
    const faults: unknown[] = []
    for (const member of [...this.#members.values()].reverse()) {
      await member.stop(options).catch(error => faults.push(error))
    }
    return faults
  }
}
