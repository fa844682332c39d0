/**
 * Lifeline: keeps one outside process alive, by a process actor in an actor system of its own, outside a run's tree.
 *
 * in   how to start the process
 * out  the process that is alive; calls to onUp after a start, and to onDown when the process died or could not be
 *      started
 * Invariant: as for `processActor`. Deprecated: start a run's processes under its supervision tree (tree.ts).
 */
import type { RestartPolicy } from '../../runtime/actor/restartPolicy'
import { createActorSystem } from '../../runtime/actor/system'
import type { Effects } from '../../runtime/effects'
import { asError } from '../../runtime/errors'
import { type Living, neverSucceeds, processActor } from './processActor'

export type { Living } from './processActor'

export interface LifelineOptions<P extends Living> {
  readonly name: string
  readonly start: () => Promise<P>
  /** Called each time that a process has started, before `current` resolves with that process. */
  readonly onUp?: (process: P) => Promise<void>
  /**
   * Called when a process that was up has died, and when `start` has rejected; not for a non-retriable TroupeError
   * before the first successful start, not when `onUp` rejects, and not at `close`.
   */
  readonly onDown?: (error: Error) => Promise<void>
  readonly onFailed: (error: Error) => void
  readonly fx: Effects
  readonly restart?: Partial<RestartPolicy>
}

export interface Lifeline<P extends Living> {
  /**
   * Resolves with the process that is alive; waits while none is. Rejects once the process is given up, or at `close`.
   */
  current(): Promise<P>
  close(): Promise<void>
}

/** @deprecated Start a process under a supervisor of the run's tree instead. */
export function lifeline<P extends Living>(options: LifelineOptions<P>): Lifeline<P> {
  const { name, onUp, onDown = async () => {}, onFailed } = options
  let wasUp = false
  const child = processActor<P>({
    ...{ name, restart: options.restart ?? {} },
    async start() {
      try {
        return await options.start()
      } catch (thrown) {
        if (!neverSucceeds(asError(thrown), wasUp)) await onDown(asError(thrown))
        throw thrown
      }
    },
    async onUp(process) {
      await onUp?.(process)
      wasUp = true
    },
    onDown: async (_reason, error) => (error === undefined ? undefined : onDown(error)),
  })
  const silent = { warn: () => {}, error: () => {} }
  const system = createActorSystem({ name: 'lifeline', log: silent, onDeadLetter: () => {} })
  system.spawn(child.make(onFailed))
  return {
    current: child.current,
    async close() {
      child.end()
      await system.stop()
    },
  }
}
