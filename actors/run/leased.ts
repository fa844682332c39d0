/**
 * Starts a process on leased GPUs.
 *
 * in   leases, a child, how to start its process        out  the process, whose end releases the lease
 * Invariant: the lease begins before the process starts and ends after the process has ended, so a GPU is used only by
 * processes that hold a lease of it. A sleeping process keeps its lease, but not the GPUs' memory.
 */
import { rejectOnAbort } from '../../runtime/rejectOnAbort'
import type { DeviceLeases, LeasedChild } from './deviceLeases'
import type { Living } from './processActor'

/** Methods of a process that can free its GPU memory for a while. */
interface Sleeper {
  sleep?(): Promise<void>
  /** Takes the GPU memory back. An engine also loads the weights of `update`, if that is given. */
  wake?(update?: never): Promise<void>
  /** Loads new weights. Engines have this method, the trainer does not. */
  updateWeights?(update: never): Promise<void>
}

/**
 * Leases the child's GPUs and starts its process with the environment that limits it to them. Rejects, and ends the
 * lease, if the signal aborts, if the start fails, or if a child with `startsAsleep` cannot fall asleep.
 */
export async function leased<P extends Living & Sleeper>(
  leases: DeviceLeases,
  child: LeasedChild,
  signal: AbortSignal,
  start: (env: Readonly<Record<string, string>>) => Promise<P>,
): Promise<P> {
  const lease = await leases.take(child, signal)
  const started = await start(lease.env).catch(thrown => {
    lease.release()
    throw thrown
  })
  const ended = new AbortController()
  const { sleep, wake, updateWeights } = started
  const own = {
    ...started,
    // A process without `sleep` and `wake` (an engine of an embedding program, or a simulated one) has no GPU memory to
    // free. It still has to load the weights that it is woken with.
    async sleep() {
      await sleep?.()
      lease.sleep()
    },
    async wake(update?: never) {
      await lease.wake(ended.signal)
      if (wake !== undefined) await (update === undefined ? wake() : wake(update))
      else if (update !== undefined) await updateWeights?.(update)
    },
    async close() {
      ended.abort()
      try {
        await started.close()
      } finally {
        lease.release()
      }
    },
  }
  if (child.startsAsleep === true) {
    await rejectOnAbort(own.sleep(), signal).catch(async thrown => {
      await own.close()
      throw thrown
    })
  }
  return own
}
