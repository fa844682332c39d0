/**
 * The Sandbox: runs untrusted Python and reports how it ended. It is usable alone and knows neither bus nor actors.
 *
 * in   code, standard input, limits      out  status, exit code, captured output with its true size, times
 * Invariant: every call is answered, and every process that a call started is dead when the call is answered.
 */
export interface RunRequest {
  /** Name of the call; its result carries the same. */
  readonly id: string
  readonly code: string
  /** cell: as in a notebook, the last expression is echoed and an error is one line. Default: script; in a session: cell. */
  readonly mode?: 'script' | 'cell'
  readonly stdin?: string
  /** Deadline, wall clock. Default 4000. */
  readonly timeoutMs?: number
  /** Limit on address space, MiB. Default 512. For a session's cell it includes the memory of the cells before it. */
  readonly memoryMb?: number
  /** Processes that the code may start, at levels `none` and `full`. Default 0; at level `none` 64. */
  readonly maxProcesses?: number
  /** Bytes captured of each stream. Default 65536. */
  readonly maxOutputBytes?: number
  /** Place in a session: cell k forks from the state that cell k-1 left, as often as it is asked for. See `noSessions`. */
  readonly session?: SessionPlace
}

/** A cell of a session. */
export interface SessionPlace {
  /** Name of the session. */
  readonly id: string
  /** 0-based number of the cell. */
  readonly cell: number
  /** Cells 0 to k-1. A sandbox that does not know the session runs them first, each under this request's limits. */
  readonly history?: readonly SessionCell[]
}

/** Input of a cell. Running it again makes the same state, unless the code depends on the time. */
export interface SessionCell {
  readonly code: string
  readonly stdin?: string
}

/** ok: exit 0. error: another exit code. timeout: deadline passed. killed: by a signal or a limit. rejected: not run. */
export type RunStatus = 'ok' | 'error' | 'timeout' | 'killed' | 'rejected'

/** The end of code that was run. */
export interface RunEnding {
  readonly status: Exclude<RunStatus, 'rejected'>
  /** null where a signal ended the code. */
  readonly exitCode: number | null
  /** Name of that signal, else null. */
  readonly signal: string | null
  /** The first bytes of the stream, at most `maxOutputBytes`. */
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  /** Number of bytes that the code wrote to the stream, including those beyond `maxOutputBytes`. */
  readonly stdoutBytes: number
  readonly stderrBytes: number
  readonly wallMs: number
  readonly cpuMs: number
  readonly maxRssBytes: number
}

/** Answer to a call. */
export interface RunResult extends Omit<RunEnding, 'status'> {
  readonly id: string
  readonly status: RunStatus
  /** Why a call was rejected or killed without a fault of its code; or which cells of its history left no state. */
  readonly reason?: string
  /** Time in the queue before the code began. */
  readonly queuedMs?: number
}

/** full: namespaces, seccomp, empty network. degraded: Landlock, seccomp, rlimits. none: rlimits only. */
export type SandboxLevel = 'full' | 'degraded' | 'none'

export interface Sandbox {
  readonly level: SandboxLevel
  /** Number of calls that run at once. */
  readonly lanes: number
  /** The reason why this sandbox has no sessions; undefined where it has. */
  readonly noSessions?: string
  /**
   * Resolves however the code ends.
   * @throws SandboxError where the sandbox is broken, full or closed, or the signal aborts the call
   */
  run(request: RunRequest, signal?: AbortSignal): Promise<RunResult>
  /** Makes `to` a copy of session `from` after its cell `cell`; the next cell is `cell + 1`. False: `from` has no such cell. */
  forkSession?(from: string, cell: number, to: string): boolean
  /** Forgets a session and frees its states. */
  endSession?(id: string): void
  /** Ends all calls and processes. */
  close(): Promise<void>
}
