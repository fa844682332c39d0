/**
 * A call on its way through the zygotes: what was asked, where it is, and the ways in which it can end.
 *
 * in   a request's call; what a zygote says of it        out  its outcome, or the error that refuses it
 */
import { rejected } from '../answers'
import { SandboxError } from '../errors'
import type { Call } from '../limits'
import type { Outcome as CallOutcome } from '../sessions/outcome'
import type { Ending, Place } from './frames'
import type { ZygoteLink } from './link'

export interface Job {
  readonly id: string
  readonly call: Call
  readonly queuedAt: number
  /** Where a session's cell belongs. */
  readonly place: Placed | undefined
  readonly answer: (outcome: Outcome) => void
  readonly refuse: (error: SandboxError) => void
  begunAt: number
  attempts: number
  /** Where it is, once it was sent. */
  at: { readonly link: ZygoteLink<Job>; readonly number: number } | undefined
  stopped: boolean
}

/** A place in a session, and the zygote that has its parent; any will do where there is none. */
export interface Placed extends Place {
  readonly link: ZygoteLink<Job> | undefined
}

export type Outcome = CallOutcome<ZygoteLink<Job>>

export function outcomeOf(link: ZygoteLink<Job>, job: Job, ending: Ending): Outcome {
  const { status, exitCode, signal, stdout, stderr, stdoutBytes, stderrBytes, wallMs, cpuMs, maxRssBytes } = ending
  const result = { status, exitCode, signal, stdout, stderr, stdoutBytes, stderrBytes, wallMs, cpuMs, maxRssBytes }
  return {
    result: { id: job.id, ...result, queuedMs: Math.max(0, job.begunAt - job.queuedAt) },
    files: ending.files,
    kept: ending.paused ? { link, bytes: ending.stateBytes, heldBytes: ending.heldBytes } : undefined,
  }
}

/** It had begun when its zygote died, and died with it. */
export function lost(job: Job, reason: string): Outcome {
  const rest = rejected(job.id, `the zygote of the call was lost: ${reason}`)
  const result = { ...rest, status: 'killed', signal: 'SIGKILL', wallMs: performance.now() - job.begunAt } as const
  return { result, files: false, kept: undefined }
}

export const stopped = () => new SandboxError('sandbox.aborted', { retriable: false, message: 'the call was aborted' })

export const startFailed = (reason: string) =>
  new SandboxError('sandbox.start_failed', { retriable: true, message: `no zygote starts: ${reason}` })

/** The child could not be made or isolated. @param error the step times 1000, and the errno of it */
export function childFailed(error: number): SandboxError {
  const step = Math.floor(error / 1000)
  const where = step > 0 ? `step ${step} of its isolation, ` : ''
  const message = `the zygote could not start the code: ${where}error ${error % 1000}`
  return new SandboxError('sandbox.start_failed', { retriable: true, message })
}
