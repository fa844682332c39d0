/**
 * Scope: what a role stands on while it is active, and what is closed when it is not any more.
 *
 * in   a run's options, an open embedding        out  hosts under groups of their own; what to close, the youngest first
 * Invariant: a host reads every partition of its feeds, whoever else runs the same behaviour, unless its spec says that the
 * partitions are shared out: `owner`, or `shared`.
 */
import type { Message } from '../../../messages'
import { type Embedded, type HostSpec, openTroupe } from '../../../runtime/embed'
import { firstFailure } from '../../../runtime/firstFailure'
import type { Host } from '../../../runtime/host/host'
import type { RunOptions } from '../run'

export interface Scope {
  readonly options: RunOptions
  readonly troupe: Embedded
  /** The tree can go no further. */
  readonly fail: (error: Error) => void
  /** Resolves with false when another process has taken over. */
  readonly mayAct: () => Promise<boolean>
  host<S, I extends Message, R>(spec: HostSpec<S, I, R>): Promise<Host>
  onClose(closer: () => Promise<void>): void
  close(): Promise<void>
}

const always = async () => true

export function openScope(
  options: RunOptions,
  troupe: Embedded,
  fail: (error: Error) => void,
  mayAct: () => Promise<boolean> = always,
): Scope {
  const closers: (() => Promise<void>)[] = []
  const guard = mayAct === always ? {} : { mayAct }
  return {
    options,
    troupe,
    fail,
    mayAct,
    async host(spec) {
      const own =
        spec.shared || spec.owner !== undefined ? {} : { group: `${spec.behaviour.name}.${troupe.fx.unique()}` }
      const started = await troupe.host({ ...own, ...guard, ...spec })
      closers.push(() => started.close())
      return started
    },
    onClose(closer) {
      closers.push(closer)
    },
    async close() {
      for (const closer of closers.splice(0).reverse()) {
        await closer().catch(thrown => options.log.warn({ err: thrown }, 'a part did not close cleanly'))
      }
    },
  }
}

/** What a run, or one role of it, is begun on: an open embedding, closed with the scope, and the first fault of the tree. */
export async function openRunScope(options: RunOptions) {
  const { run, fx, log, bus, blobs, partitions = 1 } = options
  const { failed, fail } = firstFailure()
  const metrics = options.metrics === undefined ? {} : { metrics: options.metrics }
  const troupe = await openTroupe({ bus, blobs, run, partitions, fx, log, onFailed: fail, ...metrics })
  const scope = openScope(options, troupe, fail)
  scope.onClose(() => troupe.close())
  return { scope, journal: troupe.journal, failed }
}
