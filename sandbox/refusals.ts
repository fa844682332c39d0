/**
 * Answers to a call that is not run to its end: a rejected result, or a SandboxError. The pools, the sessions and the
 * tools share them.
 */
import { SandboxError } from './errors'
import type { RunResult } from './sandbox'

export function rejected(id: string, reason: string): RunResult {
  const empty = { stdout: new Uint8Array(0), stderr: new Uint8Array(0), stdoutBytes: 0, stderrBytes: 0 }
  const ending = { status: 'rejected', exitCode: null, signal: null } as const
  return { id, ...ending, ...empty, wallMs: 0, cpuMs: 0, maxRssBytes: 0, reason }
}

export function aborted(signal: AbortSignal): SandboxError {
  return new SandboxError('sandbox.aborted', {
    retriable: false,
    message: 'the call was aborted',
    cause: signal.reason,
  })
}

export function queueFull(lanes: number, queueLimit: number): SandboxError {
  return new SandboxError('sandbox.queue_full', {
    retriable: true,
    message: `the sandbox is full: it has ${lanes + queueLimit} calls, ${lanes} that may run at once and ${queueLimit} that wait`,
    hint: 'wait until some calls have ended, or open the sandbox with a larger queueLimit',
  })
}

/** Error for callers of the sandbox to throw when the machine's memory, not the code, ended a call. */
export function outOfMemory(): SandboxError {
  return new SandboxError('sandbox.out_of_memory', {
    retriable: true,
    message: 'the machine had no memory left for the call',
    hint: 'give the machine or its cgroup more memory, lower memoryMb of the calls, or run fewer at once (lanes)',
  })
}

export function closed(): SandboxError {
  return new SandboxError('sandbox.closed', { retriable: false, message: 'the sandbox is closed' })
}
