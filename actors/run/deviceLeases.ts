/**
 * Leases of one process's GPUs: which child (an engine or the trainer) holds which GPUs, and which children may use the
 * GPUs' memory now.
 *
 * in   a device plan, children that start, sleep, wake and end
 * out  leases, each with the environment that shows the child its own GPUs and no others
 * Invariant: unless the plan says `shared`, awake leases of a GPU belong either only to engines or only to the trainer.
 * A lease that would break this waits; waiting leases are tried in the order in which they were asked for. A child's
 * next lease waits until its last one is released.
 */
import type { DevicePlan } from '../../config/devicePlan'
import { rejectOnAbort } from '../../runtime/rejectOnAbort'

export type LeaseGroup = 'engines' | 'trainer'

export interface DeviceLease {
  /** Environment variable that limits a process to the GPUs of the lease; no variable for a child without GPUs. */
  readonly env: Readonly<Record<string, string>>
  /** Lets children of the other group use the GPUs. Call it when the child has freed its GPU memory. */
  sleep(): void
  /** Resolves when the child may use the memory of its GPUs again; at once if it may already. Rejects on abort. */
  wake(signal: AbortSignal): Promise<void>
  /** Ends the lease; call it when the child has ended. Later calls do nothing. */
  release(): void
}

export interface DeviceLeases {
  readonly plan: DevicePlan
  /**
   * Leases the GPUs that the plan gives to this engine or trainer, once they are free. Rejects when the signal aborts.
   */
  take(child: LeasedChild, signal: AbortSignal): Promise<DeviceLease>
}

export interface LeasedChild {
  readonly name: string
  readonly group: LeaseGroup
  /** Number of the engine in the plan, from 0. Default: 0; not read for the trainer. */
  readonly index?: number
  /** True if the child frees its memory once it has started, and then waits to be woken. Default: false. */
  readonly startsAsleep?: boolean
}

export interface LeaseOptions {
  readonly plan: DevicePlan
  /** Names of the GPUs, in the order of the plan's indices. */
  readonly devices: readonly string[]
  /** Name of the environment variable that limits a process to the GPUs that it lists. */
  readonly variable: string
  /** Called with the names of a child's GPUs when its lease begins, and with an empty list when it ends. */
  readonly onChange?: (child: LeasedChild, devices: readonly string[]) => void
}

interface Held {
  readonly child: LeasedChild
  /**
   * Names of the lease's GPUs. A colocated child without a GPU has `hostMemory` instead, so that engines and trainer
   * take turns without a GPU, too.
   */
  readonly keys: readonly string[]
  isAwake: boolean
}

interface Waiting {
  readonly mayGo: () => boolean
  readonly go: () => void
}

/** Stands for the host's memory in the leases of children that have no GPU. */
const hostMemory = 'host'

export function deviceLeases({ plan, devices, variable, onChange = () => {} }: LeaseOptions): DeviceLeases {
  const held = new Map<string, Held>()
  const waiting: Waiting[] = []

  /** True if no child of the other group has an awake lease on any of these GPUs, or the plan is `shared`. */
  const isFree = ({ child, keys }: Pick<Held, 'child' | 'keys'>): boolean =>
    plan.kind === 'shared' ||
    ![...held.values()].some(
      other => other.isAwake && other.child.group !== child.group && other.keys.some(key => keys.includes(key)),
    )

  function next(): void {
    for (const one of [...waiting]) {
      if (!one.mayGo()) continue
      waiting.splice(waiting.indexOf(one), 1)
      one.go()
    }
  }

  /** Runs `act` once `mayGo` returns true. `mayGo` is called now, and again whenever a lease sleeps or ends. */
  async function turn(mayGo: () => boolean, act: () => void, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    let one: Waiting | undefined
    const gone = new Promise<void>(resolve => {
      one = {
        mayGo: () => !signal.aborted && mayGo(),
        go() {
          act()
          resolve()
        },
      }
      waiting.push(one)
    })
    next()
    await rejectOnAbort(gone, signal).catch(thrown => {
      const at = waiting.indexOf(one!)
      if (at >= 0) waiting.splice(at, 1)
      throw thrown
    })
  }

  return {
    plan,
    async take(child, signal) {
      const indices = child.group === 'trainer' ? plan.trainer : (plan.engines[child.index ?? 0] ?? [])
      const names = indices.map(index => devices[index]!)
      const lease: Held = {
        child,
        keys: names.length > 0 ? names : plan.kind === 'colocated' ? [hostMemory] : [],
        isAwake: true,
      }
      const begin = () => {
        held.set(child.name, lease)
        onChange(child, names)
      }
      await turn(() => !held.has(child.name) && isFree(lease), begin, signal)
      const isHeld = () => held.get(child.name) === lease
      return {
        env: names.length === 0 ? {} : { [variable]: names.join(',') },
        sleep() {
          lease.isAwake = false
          next()
        },
        async wake(until) {
          if (lease.isAwake || !isHeld()) return
          const begun = () => {
            lease.isAwake = true
          }
          await turn(() => isFree(lease), begun, until)
        },
        release() {
          if (!isHeld()) return
          held.delete(child.name)
          onChange(child, [])
          next()
        },
      }
    },
  }
}
