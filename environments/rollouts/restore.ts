/**
 * Starts an environment with the files that a rollout had after its calls.
 *
 * in   a prepared task, the rollout's calls with the snapshots after them        out  an environment with these files
 * The environment starts from the snapshot after the last call. If the store no longer has it, the environment starts
 * from an earlier snapshot, or from the task's first one, and the calls since then run again.
 * Invariant: if files that were made again differ from those recorded, the result says so (`other-files`).
 */
import type { EnvironmentAt, PastCall, RestoredFrom } from '../../messages/facts'
import { TroupeError } from '../../runtime/errors'
import type { Environment } from '../drivers/driver'
import { waitUntilHealthy } from '../tasks/healthcheck'
import type { AllowedVariables } from '../tasks/variables'
import { deadlineOf } from '../tools/schemas'
import type { PreparedTask, RolloutDriver } from './prepareTask'
import { runCall } from './runCall'

export interface Restored {
  readonly environment: Environment
  /** Snapshot that the environment's files are equal to. */
  readonly snapshot: string
  /** Way in which the files were restored; absent: no call had changed them since the task's first snapshot. */
  readonly from?: RestoredFrom
}

/** Upper bound on the starts that are tried: a start fails if its snapshot was just removed from the store. */
const tries = 3

/** Starts the environment with the files after the last of the calls. @throws TroupeError environment.* */
export async function restore(
  prepare: () => Promise<PreparedTask>,
  { task: of, calls, timeoutMs }: EnvironmentAt,
  allowed: AllowedVariables,
  signal?: AbortSignal,
): Promise<Restored> {
  for (let attempt = 1; ; attempt++) {
    const prepared = await prepare()
    const { driver, spec, base, task } = prepared
    const wanted = calls.findLast(({ snapshot }) => snapshot !== null)?.snapshot ?? base
    // Index of the last call whose snapshot the store has; -1: the task's own files.
    const last = await lastKept(calls, driver)
    const snapshot = calls[last]?.snapshot ?? base
    let environment: Environment
    try {
      environment = await driver.start({ ...spec, snapshot }, signal)
    } catch (thrown) {
      if (attempt < tries && isGone(thrown)) continue
      throw thrown
    }
    try {
      await waitUntilHealthy(environment, task.config.environment.healthcheck)
      if (snapshot === wanted)
        return { environment, snapshot, ...(snapshot === base ? {} : { from: 'snapshot' as const }) }
      for (let at = last + 1; at < calls.length; at++) {
        const call = calls[at]!
        const again = { ...call, timeoutMs: deadlineOf(of, call.tool, timeoutMs) }
        await runCall(prepared, calls.slice(0, at), environment, again, allowed, signal)
      }
      const { digest } = await environment.snapshot()
      return { environment, snapshot: digest, from: digest === wanted ? 'calls' : 'other-files' }
    } catch (thrown) {
      await environment.stop()
      throw thrown
    }
  }
}

async function lastKept(calls: readonly PastCall[], driver: RolloutDriver): Promise<number> {
  for (let at = calls.length - 1; at >= 0; at--) {
    const { snapshot } = calls[at]!
    if (snapshot !== null && (await driver.hasSnapshot(snapshot))) return at
  }
  return -1
}

/** True for an error that a start may throw because its snapshot was removed from the store after it was looked up. */
const isGone = (thrown: unknown): boolean =>
  thrown instanceof TroupeError &&
  (thrown.code === 'environment.no_image' || thrown.code === 'environment.start_failed')
