/**
 * Actors: bounded mailboxes, tell and ask with deadlines, restarts with a refold, dead letters. The only file that
 * imports nact, which carries the turns: one nact actor an actor of ours, and one wake-up in its mailbox at most.
 *
 * in   specs of actors          out  refs to talk to them
 * Invariant: nact never sees a message, a failure, a state or a question of ours, so what it does with them
 * (tests/nactFaults.test.ts) cannot happen to anyone.
 */
import type { ActorSystemRef, Ref } from 'nact'
import { systemEffects } from '../effects'
import { asError, type TroupeError } from '../errors'
import type { MetricsRegistry } from '../metrics'
import { actorError } from './actorError'
import { Cell, type Host, type Parent } from './cell'
import { Family } from './family'
import { instruments } from './instruments'
import type { ActorRef, ActorSpec, Carrier, DeadLetter, StopOptions } from './spec'

export type {
  ActorContext,
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
  /** Gets every message that was not handled. Must not throw; what it throws is logged. */
  readonly onDeadLetter: (letter: DeadLetter) => void
  /** An actor at the top used up its restarts, and its spec has no `onEscalate`. It has ended. */
  readonly onEscalate?: (path: string, error: TroupeError) => void
}

export interface ActorSystem {
  /** Throws `actor.too_many_children` above 64, `actor.name_taken`, `actor.bad_name`, `actor.stopped`. */
  spawn<M>(spec: ActorSpec<M>): ActorRef<M>
  /** Ends all actors, the youngest first, with these options each. Rejects with the first that was cut off, after all. */
  stop(options?: StopOptions): Promise<void>
}

let systems = 0

/** A log that fails must not take the actors with it; the process is told instead. */
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
  const nact = require('nact') as typeof import('nact')
  const path = `/${options.name}`
  // nact keeps systems in a table of the whole process, by name, and lets a second one replace the first.
  const root = (nact.start as unknown as (options: { name: string }) => ActorSystemRef)({
    name: `${options.name}-${++systems}`,
  })
  const refs = new WeakMap<Carrier, Ref<null>>()

  const host: Host = {
    carry(parent, name, turn) {
      const above: Ref<unknown> = (parent && refs.get(parent)) ?? root
      const run = async (state: null): Promise<null> => {
        await turn()
        return state
      }
      const ref: Ref<null> = nact.spawn(above, run, name)
      const carrier = { wake: () => nact.dispatch(ref, null), dispose: () => nact.stop(ref) }
      refs.set(carrier, ref)
      return carrier
    },
    elapsed: systemEffects.elapsed,
    log: steady(options.log),
    instruments: options.metrics && instruments(options.metrics),
    onDeadLetter: options.onDeadLetter,
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
      if (stopped) throw actorError('actor.stopped', path, 'has stopped')
      return family.add(spec.name, () => new Cell(spec, parent, host))
    },
    async stop(how = {}) {
      stopped = true
      const [fault] = await family.stop(how)
      nact.stop(root)
      if (fault !== undefined) throw fault
    },
  }
}
