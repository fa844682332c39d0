/**
 * A call on its way through the zygotes (warm interpreters that fork a child for each call): its input, its session,
 * and the ways in which it can end.
 *
 * in   a checked call; a zygote's replies about it        out  its outcome, or the error that refuses it
 */

import { SandboxError } from '../errors'
import type { Call } from '../limits'
import { rejected } from '../refusals'
import { zygoteDiedReason } from '../retryLost'
import { MACHINE_OUT_OF_MEMORY } from '../sandbox'
import type { Outcome as CallOutcome } from '../sessions/outcome'
import type { Ending, Place } from './frames'
import type { ZygoteLink } from './link'

export interface Job {
  readonly id: string
  readonly call: Call
  /** Client that the call belongs to, since clients take turns: the request's client name, or its session's id. */
  readonly client: string
  /** true: the client is named, so its only call may begin while the long calls of a client that floods run. */
  readonly named: boolean
  readonly queuedAt: number
  /** Kind of the zygotes that can run the call; it changes if that kind fails. */
  kind: number
  /** Keys of the session states that a cell forks from and leaves; undefined for a call without a session. */
  readonly place: Placed | undefined
  readonly answer: (outcome: Outcome) => void
  readonly refuse: (error: SandboxError) => void
  /** Time at which the code began, by performance.now(); 0 before. */
  begunAt: number
  attempts: number
  /** Time (performance.now()) since which the call, whose turn it is, has waited for memory; 0 if it has not waited. */
  shortSince: number
  /** Number of processes that the kernel had killed for lack of memory when the call was sent. */
  killsBefore: number
  /** Zygote to which the call was sent, and its number there; undefined while the call waits. */
  at: { readonly link: ZygoteLink<Job>; readonly number: number } | undefined
  /** true: the caller aborted the call. */
  stopped: boolean
}

/** Makes the job of a call that was not sent to a zygote yet. */
export function newJob(
  given: Pick<Job, 'id' | 'call' | 'client' | 'named' | 'place' | 'kind' | 'answer' | 'refuse'>,
): Job {
  const queuedAt = performance.now()
  return { ...given, queuedAt, begunAt: 0, attempts: 0, shortSince: 0, killsBefore: 0, at: undefined, stopped: false }
}

/**
 * Place in a session. `link` is the zygote that has the cell's parent state; undefined if the cell has no parent, so
 * that any zygote can run it.
 */
export interface Placed extends Place {
  readonly link: ZygoteLink<Job> | undefined
}

export type Outcome = CallOutcome<ZygoteLink<Job>>

/**
 * Builds the outcome of a call from a zygote's report that it has ended.
 * @param outOfMemory true if the kernel has killed a process for lack of memory since the call was sent
 */
export function outcomeOf(link: ZygoteLink<Job>, job: Job, ending: Ending, outOfMemory: boolean): Outcome {
  const { status, exitCode, signal, stdout, stderr, stdoutBytes, stderrBytes, wallMs, cpuMs, maxRssBytes } = ending
  const result = { status, exitCode, signal, stdout, stderr, stdoutBytes, stderrBytes, wallMs, cpuMs, maxRssBytes }
  const said = outOfMemory ? { reason: MACHINE_OUT_OF_MEMORY } : {}
  return {
    result: { id: job.id, ...result, ...said, queuedMs: Math.max(0, job.begunAt - job.queuedAt) },
    files: ending.files,
    kept: ending.paused ? { link, bytes: ending.stateBytes, heldBytes: ending.heldBytes } : undefined,
  }
}

/** Returns the outcome of a call that had begun when its zygote died. */
export function killedWithZygote(job: Job, reason: string, outOfMemory: boolean): Outcome {
  const rest = rejected(job.id, outOfMemory ? MACHINE_OUT_OF_MEMORY : zygoteDiedReason(reason))
  const result = { ...rest, status: 'killed', signal: 'SIGKILL', wallMs: performance.now() - job.begunAt } as const
  return { result, files: false, kept: undefined }
}

export const callAborted = () =>
  new SandboxError('sandbox.aborted', { retriable: false, message: 'the call was aborted' })

export const startFailed = (reason: string) =>
  new SandboxError('sandbox.start_failed', {
    retriable: true,
    message: `zygotes (interpreters from which calls are forked) did not start, or died before the call began: ${reason}`,
  })

/**
 * Error of a call whose child could not be forked or isolated. @param error 1000 * step + errno, steps as in
 * shim/isolation.h
 */
export function childFailed(error: number): SandboxError {
  const step = Math.floor(error / 1000)
  const where = step > 0 ? `step ${step} of the isolation failed with ` : ''
  const message = `the code could not be started: ${where}errno ${error % 1000}`
  return new SandboxError('sandbox.start_failed', { retriable: true, message })
}
