/**
 * Runs one behaviour without a bus, on a log in memory. The test itself answers the open commands and requests, in an
 * order that it chooses, so that every interleaving can be tried.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Command } from '../../messages/commands'
import type { Fact } from '../../messages/facts'
import { manualEffects } from '../../runtime/effects'
import type { Behaviour, Decision, Origin } from '../../runtime/host/behaviour'

type Decided<R> = Decision & { readonly requests?: readonly R[] }

export interface World<S, R> {
  readonly log: readonly Fact[]
  /** Open commands and requests. A test removes one to answer it, or to lose it. */
  readonly commands: Command[]
  readonly requests: R[]
  state(): S
  /** Appends facts, folds them, and lets the behaviour decide, until nothing more follows. */
  append(...facts: readonly Fact[]): void
  /** Removes and returns the open command or request with this index. */
  takeCommand(index: number): Command
  takeRequest(index: number): R
  /** Advances the clock as under a host: the behaviour gets a tick every 1000 ms. */
  tick(ms: number): void
  /**
   * Advances the clocks without ticks, as for a process that was stopped: elapsed time by `ms`, the time of day by
   * `clockMs`, which differs if the clock was set meanwhile.
   */
  nap(ms: number, clockMs?: number): void
  /**
   * Restarts the process: appends `claim`, refolds the log, drops open commands and requests, and asks what is pending.
   */
  restart(claim?: Fact): void
}

export const originAt = (offset: number): Origin => ({ topic: 'trajectories', partition: 0, offset })

export function refold<S, R>(behaviour: Behaviour<S, never, R>, log: readonly Fact[]): S {
  return log.reduce((state, fact, offset) => behaviour.evolve(state, fact, originAt(offset)), behaviour.initial())
}

export function world<S, R>(behaviour: Behaviour<S, never, R>): World<S, R> {
  const clock = manualEffects(1000)
  let ahead = 0
  const fx = { ...clock, now: () => clock.now() + ahead }
  const log: Fact[] = []
  const commands: Command[] = []
  const requests: R[] = []
  let state = behaviour.initial()

  function emit(decision: Decided<R>): void {
    commands.push(...decision.commands)
    // A host does not perform a request twice at the same time.
    for (const asked of decision.requests ?? [])
      if (!requests.some(open => isDeepStrictEqual(open, asked))) requests.push(asked)
    append(...decision.facts)
  }

  function append(...facts: readonly Fact[]): void {
    // All facts of a decision are appended before the first of them is folded, as on a bus.
    const from = log.length
    log.push(...facts)
    for (let offset = from; offset < from + facts.length; offset++) {
      const before = state
      state = behaviour.evolve(before, log[offset]!, originAt(offset))
      if (state !== before && behaviour.decide !== undefined) emit(behaviour.decide(state, log[offset]!, fx))
    }
    if (behaviour.decide === undefined && facts.length > 0) emit(behaviour.pending(state, fx))
  }

  return {
    log,
    commands,
    requests,
    state: () => state,
    append,
    takeCommand: index => commands.splice(index, 1)[0]!,
    takeRequest: index => requests.splice(index, 1)[0]!,
    tick(ms) {
      if (behaviour.decide === undefined) return fx.advance(ms)
      for (let left = ms; ; left -= 1000) {
        emit(behaviour.decide(state, { type: 'tick' }, fx))
        if (left <= 0) return
        fx.advance(Math.min(left, 1000))
      }
    },
    nap(ms, clockMs = ms) {
      fx.advance(ms)
      ahead += clockMs - ms
    },
    restart(claim) {
      commands.length = 0
      requests.length = 0
      if (claim !== undefined) log.push(claim)
      state = refold(behaviour, log)
      emit(behaviour.pending(state, fx))
    },
  }
}
