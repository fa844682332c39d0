/**
 * The Sandbox: runs a piece of untrusted Python and says how it ended. Usable alone; knows neither bus nor actors.
 *
 * in   code, standard input, limits      out  status, exit code, captured output with its true size, times
 * Invariant: every call is answered; what a call started is dead when it is answered.
 */
export interface RunRequest {
  readonly id: string
  readonly code: string
  /** cell: the last expression is echoed and an error is one line, as in a notebook. Default script; cell in a session. */
  readonly mode?: 'script' | 'cell'
  readonly stdin?: string
  /** Wall clock. Default 4000. */
  readonly timeoutMs?: number
  /** Address space, MiB. Default 512. Of a session's cell: with what the cells before it hold. */
  readonly memoryMb?: number
  /** Processes that the code may start. Default 0 (level `none`: 64); levels `none` and `full` only. */
  readonly maxProcesses?: number
  /** Captured bytes a stream. Default 65536. */
  readonly maxOutputBytes?: number
  /** Cell k of a session forks from what cell k-1 left behind; asked again, it does so again. See `noSessions`. */
  readonly session?: SessionPlace
}

export interface SessionPlace {
  readonly id: string
  readonly cell: number
  /** Cells 0 to k-1, for a sandbox that does not know them: it runs them first, each under this request's limits. */
  readonly history?: readonly SessionCell[]
}

/** What a cell was given; running it again makes the same state, as far as it does not ask for the time. */
export interface SessionCell {
  readonly code: string
  readonly stdin?: string
}

/** ok: exit 0. error: any other exit. timeout: out of time. killed: by a signal or a limit. rejected: never begun. */
export type RunStatus = 'ok' | 'error' | 'timeout' | 'killed' | 'rejected'

/** How code that was begun ended. */
export interface RunEnding {
  readonly status: Exclude<RunStatus, 'rejected'>
  readonly exitCode: number | null
  readonly signal: string | null
  /** Captured head of the stream, at most `maxOutputBytes`. */
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  /** What was written in all. */
  readonly stdoutBytes: number
  readonly stderrBytes: number
  readonly wallMs: number
  readonly cpuMs: number
  readonly maxRssBytes: number
}

export interface RunResult extends Omit<RunEnding, 'status'> {
  readonly id: string
  readonly status: RunStatus
  /** Why a call was rejected, or was killed though its code did nothing; or which cells of its history left nothing. */
  readonly reason?: string
  /** How long it waited before it began. */
  readonly queuedMs?: number
}

/** full: namespaces, seccomp, empty network. degraded: Landlock, seccomp, rlimits. none: rlimits only. */
export type SandboxLevel = 'full' | 'degraded' | 'none'

export interface Sandbox {
  readonly level: SandboxLevel
  /** Calls that run at once. */
  readonly lanes: number
  /** Why the calls of sessions are rejected here; undefined where there are sessions. */
  readonly noSessions?: string
  /** Resolves for every outcome of the code; throws only when the sandbox itself is broken or its queue is full. */
  run(request: RunRequest, signal?: AbortSignal): Promise<RunResult>
  /** Makes `to` a session whose cells 0 to `cell` are those of `from`; its next is `cell + 1`. False: `from` has no such cell. */
  forkSession?(from: string, cell: number, to: string): boolean
  /** Forgets a session and what it kept. */
  endSession?(id: string): void
  close(): Promise<void>
}
