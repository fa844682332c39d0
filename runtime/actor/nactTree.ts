/**
 * Wraps the library nact: one nact actor for each incarnation (the life between two restarts) of an actor, below the
 * nact actor of its parent.
 *
 * in   bundles of envelopes for one actor
 * out  the bundles in the order of dispatch, one at a time; errors of a receiver
 * Invariant: no nact actor has more than 64 children, because nact copies the list of children for every bundle;
 * further children hang below internal branch actors. `onCrash` always answers `stop`, after Troupe's own supervision
 * has acted. Apart from bench/actors.ts, only this file imports nact. docs/architecture.md lists nact's faults and what
 * protects users from them.
 */
import type { ActorSystemRef, Ref } from 'nact'

/** Callbacks by which one incarnation of an actor handles bundles and crashes. */
export interface Receiver<B> {
  /** Handles one bundle. A rejection is a crash of the incarnation. */
  receive(bundle: B): Promise<void>
  /** Supervises after a crash. Must not reject: nact would leave the rejection unhandled. */
  crashed(error: unknown): Promise<void>
}

/** Handle on the nact actor of one incarnation. */
export interface Carrier<B> {
  /** Puts the bundle of envelopes into nact's mailbox. After `dispose` nact drops it silently. */
  dispatch(bundle: B): void
  /**
   * Ends the nact actor; it begins no further bundle. The carriers of child actors are disposed of by their own cells.
   */
  dispose(): void
}

export interface NactTree {
  /** Spawns a nact actor below that of `parent`; without a parent, below the system's root. */
  carry<B>(parent: Carrier<never> | undefined, name: string, receiver: Receiver<B>): Carrier<B>
  stop(): void
}

/** A nact actor that may have children. */
interface Branch {
  readonly ref: Ref<unknown>
  readonly above: Branch | undefined
  readonly branches: Branch[]
  /** Number of direct children that are not branches. */
  children: number
  /** Number of children here and in all branches below. */
  total: number
}

const mostChildren = 64
const mostBranches = 8

let systems = 0

export function createNactTree(name: string): NactTree {
  const nact = require('nact') as typeof import('nact')
  // The name must be unique: nact keeps systems in one table of the process, where a second one replaces the first.
  const root = branch(
    (nact.start as unknown as (options: { name: string }) => ActorSystemRef)({ name: `${name}-${++systems}` }),
  )
  const branches = new WeakMap<Carrier<never>, Branch>()

  /**
   * Finds a nact actor with room for one more child: `from` itself while it has fewer than 56 children that are not
   * branches, else one in that branch of `from` which has the fewest children. While such a full `from` has fewer than
   * 8 branches, a new branch is added to it first.
   */
  function withRoom(from: Branch): Branch {
    if (from.children < mostChildren - mostBranches) return from
    if (from.branches.length < mostBranches) {
      const inert = async () => null
      from.branches.push(branch(nact.spawn(from.ref, inert, `+${from.branches.length}`), from))
    }
    return withRoom(from.branches.reduce((least, one) => (one.total < least.total ? one : least)))
  }

  const end = (one: Branch): void => {
    for (const below of one.branches) end(below)
    nact.stop(one.ref)
  }

  return {
    carry<B>(parent: Carrier<never> | undefined, name: string, { receive, crashed }: Receiver<B>): Carrier<B> {
      const above = withRoom((parent && branches.get(parent)) ?? root)
      const run = async (state: null, bundle: B): Promise<null> => {
        await receive(bundle)
        return state
      }
      const ref: Ref<B> = nact.spawn(above.ref, run, name, {
        onCrash: async (_bundle, error, { stop }) => {
          await crashed(error)
          return stop
        },
      })
      count(above, 1)
      const own = branch(ref)
      let isDisposed = false
      const carrier: Carrier<B> = {
        dispatch: bundle => nact.dispatch(ref, bundle),
        dispose() {
          if (isDisposed) return
          isDisposed = true
          end(own)
          count(above, -1)
        },
      }
      branches.set(carrier, own)
      return carrier
    },
    stop: () => end(root),
  }
}

const branch = (ref: Ref<unknown>, above?: Branch): Branch => ({ ref, above, branches: [], children: 0, total: 0 })

function count(at: Branch, by: 1 | -1): void {
  at.children += by
  for (let one: Branch | undefined = at; one !== undefined; one = one.above) one.total += by
}
