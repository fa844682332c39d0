/**
 * Writes the supervision tree's state to the run's log: `actor.status` on `telemetry`, for `troupe doctor --tree` in
 * any process.
 *
 * in   state changes of a process's actors, and the GPUs that they lease
 * out  one record for each actor that has changed, at most 4 times a second
 * Invariant: after `close`, the newest record of each actor has its latest state, unless an append failed or the
 * process was killed. A failed append loses such records and never harms the run.
 */
import { hostname } from 'node:os'
import type { ActorStatus } from '../../messages/commands'
import { rootCause } from '../../runtime/actor/rootCause'
import type { ActorLife } from '../../runtime/actor/system'
import type { Effects } from '../../runtime/effects'
import type { Journal } from '../../runtime/journal/journal'
import type { Log } from '../../runtime/log'
import { excerpt } from '../../runtime/secrets/knownSecrets'

export interface TreeStatus {
  /** Called when the state of an actor of this process has changed. */
  readonly onLife: (life: ActorLife) => void
  /** Called when a child that gave up begins its pause. */
  readonly onRest: (path: string, error: Error) => void
  /** Called when the GPUs of an actor's process change, with the names of all its GPUs. */
  readonly onLease: (actor: string, devices: readonly string[]) => void
  /** Starts writing to the journal: first the changes that have already happened, then each new one. */
  start(journal: Pick<Journal, 'append'>): void
  /** Writes the changes that are not written yet, then stops writing. */
  close(): Promise<void>
}

const flushEveryMs = 250
const recordsPerAppend = 500
const reasonChars = 500

export function treeStatus({ fx, log }: { readonly fx: Effects; readonly log: Log }): TreeStatus {
  const own = { tree: fx.unique(), host: hostname(), pid: process.pid }
  const latest = new Map<string, ActorStatus>()
  const changed = new Set<string>()
  /** Number of restarts before the present actor at each path: a child that paused is started again as a new actor. */
  const before = new Map<string, number>()
  /** GPUs of each actor that has any. */
  const leased = new Map<string, readonly string[]>()
  let journal: Pick<Journal, 'append'> | undefined
  let timer: NodeJS.Timeout | undefined
  let writing: Promise<void> = Promise.resolve()

  /** Records an actor's state. `restarts`: total over all actors that had this path. */
  function put(actor: string, life: Pick<ActorStatus, 'kind' | 'state' | 'restarts'>, error: Error | undefined): void {
    const reason = error === undefined ? {} : { reason: excerpt(rootCause(error).message, reasonChars) }
    const { kind, state, restarts } = life
    const devices = leased.has(actor) ? { devices: leased.get(actor)! } : {}
    latest.set(actor, {
      type: 'actor.status',
      at: fx.now(),
      actor,
      kind,
      state,
      restarts,
      ...reason,
      ...devices,
      ...own,
    })
    changed.delete(actor) // the entry is removed and added again, so that the set is in the order of the latest changes
    changed.add(actor)
    if (journal !== undefined) timer ??= setTimeout(() => void flush(), flushEveryMs).unref()
  }

  function flush(): Promise<void> {
    clearTimeout(timer)
    timer = undefined
    writing = writing.then(async () => {
      const records = [...changed].map(actor => latest.get(actor)!)
      changed.clear()
      try {
        for (let at = 0; at < records.length; at += recordsPerAppend) {
          await journal?.append(records.slice(at, at + recordsPerAppend))
        }
      } catch (thrown) {
        log.debug({ err: thrown }, 'the state of the supervision tree could not be written')
      }
    })
    return writing
  }

  return {
    onLife(life) {
      const actor = nameOf(life.path)
      const last = latest.get(actor)
      if (life.state === 'starting' && last?.state === 'resting') before.set(actor, last.restarts + 1)
      put(actor, { ...life, restarts: life.restarts + (before.get(actor) ?? 0) }, life.error)
    },
    onRest(path, error) {
      const actor = nameOf(path)
      put(actor, { kind: 'process', state: 'resting', restarts: latest.get(actor)?.restarts ?? 0 }, error)
    },
    onLease(actor, devices) {
      if (devices.length === 0) leased.delete(actor)
      else leased.set(actor, devices)
      const last = latest.get(actor)
      if (last !== undefined) put(actor, last, last.reason === undefined ? undefined : new Error(last.reason))
    },
    start(given) {
      journal = given
      void flush()
    },
    async close() {
      await flush()
      journal = undefined
    },
  }
}

/** Path of an actor without its first part, the actor system's name, which is the run's. */
const nameOf = (path: string): string => path.split('/').slice(2).join('/')
