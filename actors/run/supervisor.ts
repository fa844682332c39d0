/**
 * Supervisor: an actor that starts child actors. When a child gives up, it lets that child pause, or escalates to its
 * own supervisor.
 *
 * in   children to adopt, children that gave up, ends of pauses
 * out  children started, and started again after a pause; an escalation to its own supervisor
 * Invariant: one child's restart or pause does not affect its siblings. Each child restarts itself with backoff (its
 * RestartPolicy); a supervisor acts when those restarts are used up, or at an error that no restart can help. It
 * escalates one child's error at most.
 */

import type { Message } from '../../messages'
import type { ActorContext, ActorRef, ActorSpec, Reply } from '../../runtime/actor/system'
import type { Embedded, HostSpec } from '../../runtime/embed'
import { asError } from '../../runtime/errors'
import type { Log } from '../../runtime/log'
import { onGivenUp, type WhenGivenUp } from './escalation'

/** Parent under which actors may be started: a supervisor, or an actor system. */
export type Place = Pick<ActorContext, 'spawn'>

/** Returns the embedding with its hosts as children of `place`; `onFailed` receives their escalations. */
export const embeddedUnder = (troupe: Embedded, place: Place, onFailed: (error: Error) => void): Embedded => ({
  ...troupe,
  host: <S, I extends Message, R>(spec: HostSpec<S, I, R>) => troupe.host({ ...spec, under: place, onFailed }),
})

export interface Child {
  readonly name: string
  readonly whenGivenUp: WhenGivenUp
  /**
   * Makes the child's actor; called again after each pause. The actor calls `onGivenUp` with the error that ended it.
   */
  make(onGivenUp: (error: Error, isHopeless: boolean) => void): ActorSpec<never>
}

export interface SupervisorPlan {
  readonly name: string
  /** Time in ms that `release` gives one child, and `stop` gives the supervisor with all its children, to stop. */
  readonly childStopsWithinMs: number
}

export interface SupervisorOptions {
  readonly plan: SupervisorPlan
  /** Called with the error that this supervisor cannot handle; after that, children that give up are ignored. */
  readonly escalate: (error: Error) => void
  readonly log: Log
  /** Called when a child begins a pause, so that the tree's status can show it. */
  readonly onRest?: (path: string, error: Error) => void
}

export interface Supervisor extends Place {
  readonly plan: SupervisorPlan
  readonly path: string
  /** Starts the child. Resolves when the child's actor exists; the actor's process may still be starting. */
  adopt(child: Child): Promise<void>
  /**
   * Reports that a child gave up which was not started with `adopt`: the host of a behaviour, or another supervisor.
   * This supervisor then escalates.
   */
  gaveUp(name: string, error: Error): void
  /** Stops one child that was started with `adopt`, within the plan's deadline, and forgets it. */
  release(name: string): Promise<void>
  /** Stops all children, the youngest first, then the supervisor. */
  stop(): Promise<void>
}

type Mail =
  | { readonly kind: 'adopt'; readonly child: Child; readonly reply: Reply<void> }
  | { readonly kind: 'gave-up'; readonly name: string; readonly error: Error; readonly isHopeless: boolean }
  | { readonly kind: 'rested'; readonly name: string }

interface Kept {
  readonly child: Child
  /** The child's actor; undefined while the child pauses after it gave up. */
  ref: ActorRef<never> | undefined
  rests: number
  timer?: NodeJS.Timeout
}

const adoptWithinMs = 60_000
/**
 * Upper bound on unread messages. Each event of a child is one message; more than this means that the supervisor
 * hangs.
 */
const mailboxCapacity = 4096

export async function supervise(place: Place, options: SupervisorOptions): Promise<Supervisor> {
  const { plan, escalate, log, onRest = () => {} } = options
  const kept = new Map<string, Kept>()
  let context: ActorContext | undefined
  let hasEscalated = false

  function start(one: Kept): void {
    const { child } = one
    const told = (error: Error, isHopeless: boolean) =>
      void ref.tryTell({ kind: 'gave-up', name: child.name, error, isHopeless })
    one.ref = context!.spawn(child.make(told))
  }

  const siblingsOf = (name: string): number =>
    [...kept.values()].filter(
      ({ child, ref }) => child.name !== name && child.whenGivenUp === 'rest' && ref !== undefined,
    ).length

  function onChildGivenUp({ name, error, isHopeless }: Extract<Mail, { kind: 'gave-up' }>): void {
    if (hasEscalated) return
    const one = kept.get(name)
    const verdict = onGivenUp({
      ...{ error, isHopeless, siblings: siblingsOf(name), rests: one?.rests ?? 0 },
      plan: one?.child.whenGivenUp ?? 'escalate',
    })
    if (verdict.do === 'escalate' || one === undefined) {
      hasEscalated = true
      log.debug({ supervisor: ref.path, child: name, err: error }, 'a child gave up; the supervisor escalates')
      escalate(error)
      return
    }
    const { afterMs } = verdict
    log.warn(
      { supervisor: ref.path, child: name, err: error, afterMs },
      'a child gave up and pauses; its siblings take over its work',
    )
    onRest(`${ref.path}/${name}`, error)
    one.ref = undefined
    one.rests++
    one.timer = setTimeout(() => ref.tryTell({ kind: 'rested', name }), afterMs).unref()
  }

  const ref: ActorRef<Mail> = place.spawn<Mail>({
    name: plan.name,
    kind: 'supervisor',
    mailbox: { capacity: mailboxCapacity },
    // No restarts: the supervisor holds the only record of its children, so a defect in it escalates.
    restart: { maxRestarts: 0, attemptsPerMessage: 1 },
    onEscalate: escalate,
    start(given) {
      context = given
      return mail => {
        switch (mail.kind) {
          case 'adopt': {
            const one: Kept = { child: mail.child, ref: undefined, rests: 0 }
            try {
              start(one)
              kept.set(mail.child.name, one)
              mail.reply.answer(undefined)
            } catch (thrown) {
              mail.reply.fail(asError(thrown))
            }
            return
          }
          case 'gave-up':
            return onChildGivenUp(mail)
          case 'rested': {
            const one = kept.get(mail.name)
            if (one !== undefined && one.ref === undefined && !hasEscalated) start(one)
            return
          }
        }
      }
    },
    beforeStop() {
      for (const { timer } of kept.values()) clearTimeout(timer)
    },
  })
  await ref.started

  return {
    plan,
    path: ref.path,
    spawn: spec => context!.spawn(spec),
    adopt: child => ref.ask<void>(reply => ({ kind: 'adopt', child, reply }), { deadlineMs: adoptWithinMs }),
    gaveUp: (name, error) => void ref.tryTell({ kind: 'gave-up', name, error, isHopeless: false }),
    async release(name) {
      const one = kept.get(name)
      kept.delete(name)
      clearTimeout(one?.timer)
      await one?.ref?.stop({ deadlineMs: plan.childStopsWithinMs })
    },
    stop: () => ref.stop({ deadlineMs: plan.childStopsWithinMs }),
  }
}
