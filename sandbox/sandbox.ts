/**
 * The Sandbox: runs untrusted Python and reports how it ended. It is usable alone and knows neither bus nor actors.
 *
 * in   code, standard input, limits      out  status, exit code, captured output with its true size, times
 * Invariant: every call is answered, and when it is answered the processes that it started are dead, except the paused
 * process of a session's cell. Code can break this at level `none` only: see freshProcess/pool.ts.
 */
export interface RunRequest {
  /** Id of the call, copied to its result. */
  readonly id: string
  readonly code: string
  /**
   * Mode of the code. cell: as in a notebook, the last expression is echoed, and an error is reported with its type,
   * line and message, without a traceback. Default: script; in a session: cell.
   */
  readonly mode?: 'script' | 'cell'
  readonly stdin?: string
  /** Deadline of the call in ms of wall-clock time. Default 4000. */
  readonly timeoutMs?: number
  /**
   * Limit on address space, MiB. Default 512. Modules that a zygote imported before the call do not count. For a
   * session's cell it includes the memory of the cells before it.
   */
  readonly memoryMb?: number
  /**
   * Number of processes that the code may start. Default 0; at level `none` 64. Level `degraded` and cells of sessions
   * accept 0 only.
   */
  readonly maxProcesses?: number
  /** Upper bound on the bytes captured of each stream. Default 65536. */
  readonly maxOutputBytes?: number
  /**
   * Position in a session: a cell forks from the state (paused process) that the cell before it left, also when it is
   * run again. A sandbox with `noSessions` rejects such a request.
   */
  readonly session?: SessionPlace
  /**
   * Name of the client that sends the call. Clients take turns. Without a name, each session is a client of its own,
   * and all calls without a session are one client. A call of a named client that runs no other call may begin while
   * the long calls of a client that runs four calls or more still run.
   */
  readonly client?: string
}

/** `reason` of a call that the machine had no memory for, through no fault of its code: it should be run again. */
export const MACHINE_OUT_OF_MEMORY = 'machine_out_of_memory'

/**
 * True if the call, or an earlier cell that it needs, was ended or not begun because the machine's memory was used up.
 */
export const isOutOfMemory = ({ reason }: Pick<RunResult, 'reason'>): boolean =>
  reason?.includes(MACHINE_OUT_OF_MEMORY) === true

/** Position of a cell in a session. */
export interface SessionPlace {
  /** Id of the session. */
  readonly id: string
  /** 0-based number of the cell in its session. */
  readonly cell: number
  /**
   * Inputs of all earlier cells (0 to `cell` - 1). A sandbox that does not know the session runs them first, each under
   * this request's limits.
   */
  readonly history?: readonly SessionCell[]
}

/**
 * Input of a cell. Running it again makes the same state, unless the code depends on the time or the order of threads.
 */
export interface SessionCell {
  readonly code: string
  readonly stdin?: string
}

/**
 * Status of a call. ok: exit 0. error: another exit code. timeout: deadline passed. killed: by a signal or a limit.
 * rejected: the request was refused (`reason` says why) and the code did not run.
 */
export type RunStatus = 'ok' | 'error' | 'timeout' | 'killed' | 'rejected'

/**
 * Report on code that began and has ended, by itself or killed: status, exit code or signal, captured output, time and
 * memory used.
 */
export interface RunEnding {
  readonly status: Exclude<RunStatus, 'rejected'>
  /** Exit code of the code; null if a signal ended it. */
  readonly exitCode: number | null
  /** Name of the signal that ended the code, else null. */
  readonly signal: string | null
  /** First bytes of standard output, at most `maxOutputBytes`. */
  readonly stdout: Uint8Array
  /** First bytes of standard error, at most `maxOutputBytes`. */
  readonly stderr: Uint8Array
  /** Number of bytes that the code wrote to standard output, including those beyond `maxOutputBytes`. */
  readonly stdoutBytes: number
  /** Number of bytes that the code wrote to standard error, including those beyond `maxOutputBytes`. */
  readonly stderrBytes: number
  readonly wallMs: number
  readonly cpuMs: number
  readonly maxRssBytes: number
}

/** Result of a call. For a rejected call only `id`, `status` and `reason` have a meaning. */
export interface RunResult extends Omit<RunEnding, 'status'> {
  readonly id: string
  readonly status: RunStatus
  /**
   * Reason for which the call was rejected, or killed though its code may have done nothing wrong: its zygote (the warm
   * interpreter that it was forked from) died, or the machine or its cgroup had no memory left
   * (MACHINE_OUT_OF_MEMORY, which a call that waited too long for memory gets too). For a call of a session that first
   * had to run earlier cells again: names those of them that left no state, whose effects the call does not see.
   */
  readonly reason?: string
  /** Milliseconds that the call waited in the sandbox before its code began. Level `none` does not measure it. */
  readonly queuedMs?: number
}

/**
 * Level of isolation. full: namespaces, seccomp, empty network. degraded: Landlock, seccomp, rlimits. none: rlimits
 * only.
 */
export type SandboxLevel = 'full' | 'degraded' | 'none'

export interface Sandbox {
  readonly level: SandboxLevel
  /** Number of calls that run at once. */
  readonly lanes: number
  /** Reason for which this sandbox has no sessions; undefined if it has them. */
  readonly noSessions?: string
  /**
   * Runs a call. Resolves with its result, however the code ends.
   * @throws SandboxError if the sandbox is broken, full or closed, or if the signal aborts the call
   */
  run(request: RunRequest, signal?: AbortSignal): Promise<RunResult>
  /**
   * Copies session `from` up to its cell `cell` to a session `to`, whose next cell is `cell + 1`. Returns false if
   * `from` has no such cell.
   */
  forkSession?(from: string, cell: number, to: string): boolean
  /** Ends a session: forgets its cells and frees their states. */
  endSession?(id: string): void
  /** Closes the sandbox: ends all calls and processes. */
  close(): Promise<void>
}
