/**
 * Actor systems: bounded mailboxes, tell and ask with deadlines, restarts that rebuild an actor's state, dead letters.
 *
 * in   specs of actors          out  refs to send to them; dead letters, escalations and state changes of all actors
 * Invariant: nact carries every envelope and runs every handler (nactTree.ts); back-pressure, order after a crash,
 * restarts and the end of an actor are decided here (cell.ts), so that nact's faults reach no user
 * (tests/runtime/actor/nactFaults.test.ts).
 */

import { systemEffects } from '../effects'
import { asError, type TroupeError } from '../errors'
import type { MetricsRegistry } from '../metrics'
import { actorError } from './actorError'
import { Cell, type Host, type Parent } from './cell'
import { Family } from './family'
import { instruments } from './instruments'
import { createNactTree } from './nactTree'
import type { ActorLife, ActorRef, ActorSpec, DeadLetter, StopOptions } from './spec'

export type {
  ActorContext,
  ActorLife,
  ActorRef,
  ActorSpec,
  AskOptions,
  DeadLetter,
  Handler,
  Reply,
  StopOptions,
  StopReason,
  TellOptions,
} from './spec'

export interface ActorSystemOptions {
  readonly name: string
  readonly log: Host['log']
  readonly metrics?: MetricsRegistry
  /**
   * Receives every dead letter. A message refused for lack of room is not a dead letter. Must not throw; an error that
   * it throws is logged.
   */
  readonly onDeadLetter: (letter: DeadLetter) => void
  /**
   * Called when a top-level actor without an `onEscalate` of its own has given up: restarts used up, or a fatal error.
   */
  readonly onEscalate?: (path: string, error: TroupeError) => void
  /** Receives every state change of every actor. Must not throw; an error that it throws is logged. */
  readonly onLife?: (life: ActorLife) => void
}

export interface ActorSystem {
  /**
   * Starts a top-level actor; the number of actors is not bounded. @throws TroupeError actor.name_taken,
   * actor.bad_name, actor.bad_capacity, actor.stopped
   */
  spawn<M>(spec: ActorSpec<M>): ActorRef<M>
  /**
   * Ends all top-level actors, the youngest first, each with these options; an actor ends its children. If an actor was
   * cut off at its deadline, the call then rejects with the error of the first such top-level actor.
   */
  stop(options?: StopOptions): Promise<void>
}

/** Wraps a log so that its errors do not end the actors; the process emits a warning instead. */
function steady(log: Host['log']): Host['log'] {
  const guard = (write: () => void) => {
    try {
      write()
    } catch (error) {
      process.emitWarning(asError(error))
    }
  }
  return {
    warn: (fields, text) => guard(() => log.warn(fields, text)),
    error: (fields, text) => guard(() => log.error(fields, text)),
  }
}

export function createActorSystem(options: ActorSystemOptions): ActorSystem {
  const path = `/${options.name}`
  const nact = createNactTree(options.name)
  const host: Host = {
    carry: nact.carry,
    elapsed: systemEffects.elapsed,
    log: steady(options.log),
    instruments: options.metrics && instruments(options.metrics),
    onDeadLetter: options.onDeadLetter,
    onLife: options.onLife,
  }
  const parent: Parent = {
    path,
    carrier: undefined,
    failed: (actor, error) => options.onEscalate?.(actor, error),
  }
  const family = new Family(path)
  let stopped = false
  return {
    spawn(spec) {
      if (stopped) throw actorError('actor.stopped', path, 'is stopping or has stopped')
      return family.add(spec.name, () => new Cell(spec, parent, host))
    },
    async stop(how = {}) {
      stopped = true
      const [fault] = await family.stop(how)
      nact.stop()
      if (fault !== undefined) throw fault
    },
  }
}
