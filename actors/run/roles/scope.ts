/**
 * Scope: the part of a run that one process has: its behaviours (state machines over the log) and processes, under the
 * supervisors of actors/run/tree.ts, and their end.
 *
 * in   a run's options, an open embedding (runtime/embed.ts)
 * out  hosted behaviours with consumer groups of their own; `close`, which ends them
 * Invariant: `close` ends what was started last first, and supervisors after their children. It waits for each part as
 * long as the part's supervisor allows, after an abort at most 2 s; then it logs a warning and goes on. A host (a
 * running behaviour) reads every partition of its feeds (the topics that it reads), also if other processes run the
 * same behaviour. With `shared` or `owner` in its spec the processes divide the partitions among them; with `owner`, a
 * host also writes a claim to each partition that it gets.
 */
import { timeoutsOf } from '../../../config/estimate/timeouts'
import type { Message } from '../../../messages'
import { type Embedded, type HostSpec, openTroupe } from '../../../runtime/embed'
import { TroupeError } from '../../../runtime/errors'
import { firstFailure } from '../../../runtime/firstFailure'
import type { Host } from '../../../runtime/host/host'
import { within } from '../../../runtime/within'
import { type HeededOrders, heedOrders } from '../control/heedOrders'
import type { DeviceLeases } from '../deviceLeases'
import { openLeases } from '../openLeases'
import type { Living, ProcessActor } from '../processActor'
import type { RunOptions } from '../run'
import { type Supervisor, supervise } from '../supervisor'
import { type BranchName, type ProcessKind, rootPlan, tree } from '../tree'
import { type TreeStatus, treeStatus } from '../treeStatus'

export interface Scope {
  readonly options: RunOptions
  readonly troupe: Embedded
  /** Ends the run in this process: `finished` of its Run rejects with this error. Only the first error counts. */
  readonly fail: (error: Error) => void
  /**
   * Call it before each write. Resolves with true if this process may write for its role, with false if another
   * process leads the role; always true for roles without an election.
   */
  readonly mayAct: () => Promise<boolean>
  /** Returns the leases of this process's GPUs; the same ones for all its scopes. */
  leases(): Promise<DeviceLeases>
  /** Returns the part of the scope under the named supervisor; starts that supervisor if it does not run yet. */
  under(name: BranchName): Promise<Branch>
  host<S, I extends Message, R>(spec: HostSpec<S, I, R>): Promise<Host>
  /** Registers what ends a part when the scope closes; `part` names it in the warning if it takes too long or fails. */
  onClose(part: string, close: () => Promise<void>): void
  close(): Promise<void>
}

/** The part of a scope whose hosts and processes are children of one supervisor. */
export interface Branch extends Scope {
  /**
   * Starts actors that own processes and that end together. Resolves when the actors exist; their processes may still
   * be starting.
   */
  processes<P extends Living>(kind: ProcessKind, actors: readonly ProcessActor<P>[]): Promise<void>
}

/** Root of a process's supervision tree, and what all scopes of the process share. */
export interface Root {
  readonly supervisor: Supervisor
  readonly status: TreeStatus
  readonly leases: DeviceLeases
  readonly orders: HeededOrders
}

/** Upper bound, in ms, on the wait for each part of an aborted run to end; a step under way is then given up. */
const abortedMs = 2000

const always = async () => true

/**
 * Time in ms that the supervisor `name` gives its children to stop. `learning` waits as long as a step may take, since
 * a step's result is worth more than a quick end.
 */
const stopsWithinMs = (name: BranchName, { config }: RunOptions): number =>
  name === 'learning' ? timeoutsOf(config).stepMs : tree[name].childStopsWithinMs

export function openScope(
  options: RunOptions,
  troupe: Embedded,
  fail: (error: Error) => void,
  mayAct: () => Promise<boolean> = always,
  root?: Root,
): Scope {
  const { log } = options
  const closers: { readonly part: string; readonly close: () => Promise<void>; readonly withinMs: number }[] = []
  const branches = new Map<BranchName, Promise<Branch>>()
  const guard = mayAct === always ? {} : { mayAct }
  let leases = root === undefined ? undefined : Promise.resolve(root.leases)

  async function openBranch(name: BranchName): Promise<Branch> {
    const supervisor = await supervise(root?.supervisor ?? troupe, {
      plan: { name, childStopsWithinMs: stopsWithinMs(name, options) },
      escalate: error => (root === undefined ? fail(error) : root.supervisor.gaveUp(name, error)),
      log,
      ...(root === undefined ? {} : { onRest: root.status.onRest }),
    })
    const { childStopsWithinMs: withinMs } = supervisor.plan
    closers.push({ part: `supervisor ${name}`, close: () => supervisor.stop(), withinMs })
    const plans: Readonly<Record<string, 'rest' | 'escalate'>> = tree[name].processes
    return {
      ...scope,
      host: spec =>
        host(
          { under: supervisor, onFailed: error => supervisor.gaveUp(spec.behaviour.name, error), ...spec },
          withinMs,
        ),
      onClose: (part, close) => void closers.push({ part, close, withinMs }),
      async processes(kind, actors) {
        const end = async (actor: { readonly name: string; end(): void }) => {
          actor.end()
          await supervisor.release(actor.name)
        }
        closers.push({
          part: `processes of kind ${kind}`,
          close: async () => void (await Promise.all(actors.map(end))),
          withinMs,
        })
        for (const { name, make } of actors) await supervisor.adopt({ name, make, whenGivenUp: plans[kind]! })
      },
    }
  }

  async function host<S, I extends Message, R>(spec: HostSpec<S, I, R>, withinMs: number): Promise<Host> {
    const own = spec.shared || spec.owner !== undefined ? {} : { group: `${spec.behaviour.name}.${troupe.fx.unique()}` }
    const started = await troupe.host({ ...own, ...guard, ...spec })
    closers.push({ part: `behaviour ${spec.behaviour.name}`, close: () => started.close(), withinMs })
    return started
  }

  const { childStopsWithinMs: rootMs } = rootPlan
  const scope: Scope = {
    ...{ options, troupe, fail, mayAct },
    leases: () => (leases ??= openLeases(options)),
    under(name) {
      const found = branches.get(name) ?? openBranch(name)
      branches.set(name, found)
      return found
    },
    host: spec => host(spec, rootMs),
    onClose: (part, close) => void closers.push({ part, close, withinMs: rootMs }),
    async close() {
      // From here on, writes that wait for disk space fail; otherwise the run could not end.
      if (root !== undefined) troupe.disk.close()
      for (const { part, close, withinMs: usualMs } of closers.splice(0).reverse()) {
        const withinMs = root?.orders.isAborted() ? Math.min(usualMs, abortedMs) : usualMs
        const late = () => tooLong(part, withinMs)
        await within(close(), withinMs, late).catch(err =>
          log.warn({ err, part }, 'a part of this process did not close cleanly'),
        )
      }
      branches.clear()
    },
  }
  return scope
}

const tooLong = (part: string, ms: number) =>
  new TroupeError('actor.stop_timeout', {
    boundary: 'actor',
    retriable: false,
    message: `${part} had not closed ${ms} ms after it was told to; the remaining parts of this process are closed without waiting for it`,
  })

/**
 * Opens the base of a run, or of one role of it: an embedding, the root supervisor, and a promise of the failure that
 * ends the run.
 */
export async function openRunScope(options: RunOptions) {
  const { run, fx, log, bus, blobs, partitions = 1 } = options
  const { failed, fail } = firstFailure()
  const status = treeStatus({ fx, log })
  const leases = await openLeases(options, status.onLease)
  const metrics = options.metrics === undefined ? {} : { metrics: options.metrics }
  const stop = options.stop === undefined ? {} : { stop: options.stop }
  const troupe = await openTroupe({
    ...{ bus, blobs, run, partitions, fx, log, onFailed: fail, onLife: status.onLife, ...metrics, ...stop },
    commandRetentionMs: options.config.log.commandRetentionMs,
  })
  const supervisor = await supervise(troupe, { plan: rootPlan, escalate: fail, log })
  status.start(troupe.journal)
  const orders = await heedOrders(troupe.journal, fx, troupe.disk, fail)
  const root: Root = { supervisor, status, leases, orders }
  const scope = openScope(options, troupe, fail, undefined, root)
  scope.onClose('bus', () => troupe.close())
  scope.onClose('reader of orders', () => orders.close())
  scope.onClose('status of the tree', () => status.close())
  scope.onClose('root supervisor', () => supervisor.stop())
  return { scope, root, journal: troupe.journal, failed }
}
