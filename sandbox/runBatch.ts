/**
 * Runs many requests in a sandbox without filling its queue.
 *
 * in   requests, in any number      out  their results, in the requests' order
 * Invariant: the sandbox has at most `concurrency` of the requests at once; the first error aborts the other requests.
 */

import { checkBounds } from './integerBounds'
import type { RunRequest, RunResult, Sandbox } from './sandbox'

export interface BatchOptions {
  readonly signal?: AbortSignal
  /**
   * Upper bound on the requests that the sandbox has at once, running or waiting. Default: twice its lanes (calls that
   * run at once), so that no worker slot waits for this loop.
   */
  readonly concurrency?: number
}

/** Runs all requests. @throws SandboxError sandbox.bad_option, and as Sandbox.run does */
export async function runBatch(
  sandbox: Sandbox,
  requests: readonly RunRequest[],
  options: BatchOptions = {},
): Promise<RunResult[]> {
  checkBounds('sandbox.bad_option', options, { concurrency: [1, 2 ** 31 - 1] })
  const results = new Array<RunResult>(requests.length)
  const failed = new AbortController()
  const signal = options.signal ? AbortSignal.any([options.signal, failed.signal]) : failed.signal
  const queue = requests.entries()
  const lane = async () => {
    for (const [index, request] of queue) {
      signal.throwIfAborted()
      results[index] = await sandbox.run(request, signal)
    }
  }
  const lanes = Math.min(requests.length, options.concurrency ?? 2 * sandbox.lanes)
  const running = Array.from({ length: lanes }, () =>
    lane().catch(error => {
      failed.abort(error)
      throw error
    }),
  )
  await Promise.allSettled(running) // Waits for the other requests, so that none still runs when the error is thrown.
  if (failed.signal.aborted) throw failed.signal.reason
  return results
}
