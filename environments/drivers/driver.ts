/**
 * The contract of an environment driver: files and processes that an agent acts on.
 *
 * in   a specification of the environment; commands, files        out  results of commands, files, snapshots
 * Invariant: how a command or an environment ends is a result, not an error. An error is a TroupeError with the
 * boundary `environment`: the driver or the machine cannot do what was asked. After `stop`, and after the death of this
 * process, nothing of the environment is left: no process, no mount, no cgroup, no file but its snapshots. What the
 * death of a driver's helper process or of the Docker engine leaves behind, `sweep` removes.
 */

export type DriverName = 'local' | 'oci' | 'docker'
export type NetworkMode = 'no-network' | 'public' | 'allowlist'

/** Capabilities of a driver on this machine. */
export interface DriverCapabilities {
  readonly driver: DriverName
  /** Sources of an environment's files that the driver accepts; `none`: no image. */
  readonly images: readonly ('image' | 'dockerfile' | 'compose' | 'none')[]
  readonly networks: readonly NetworkMode[]
  /** Limits that the kernel enforces on the environment as a whole. */
  readonly limits: readonly ('cpus' | 'memoryMb' | 'storageMb' | 'processes')[]
  /** Reason why `storageMb` is not among the limits, if the driver knows it. */
  readonly whyNoStorageLimit?: string
  /** True: commands may run as any user of the image; false: only as root of the environment. */
  readonly users: boolean
  readonly snapshots: boolean
}

export interface EnvironmentLimits {
  readonly cpus?: number
  readonly memoryMb: number
  readonly processes: number
  /** Upper bound on the disk space that the environment's changes take, MiB. */
  readonly storageMb?: number
}

export interface EnvironmentSpec {
  /**
   * Image to start from: a name in the image store (for `local`, one that was built there), or in the Docker engine.
   */
  readonly image?: string
  readonly limits: EnvironmentLimits
  readonly network: NetworkMode
  /**
   * Hosts that an environment with the network `allowlist` may reach: hosts, `*.domain`, addresses and ranges of
   * addresses (network/allowlist.ts).
   */
  readonly allowedHosts?: readonly string[]
  /** Environment variables of every command; the command's own override them. */
  readonly env?: Readonly<Record<string, string>>
  /** Working directory of commands whose request has no `cwd`; default: the image's, else `/`. */
  readonly workdir?: string
  /** Digest of a snapshot whose files the environment starts with, in place of the image's. */
  readonly snapshot?: string
}

export interface ExecRequest {
  /** Shell command, run by `sh -c`; an array is run as it is. */
  readonly command: string | readonly string[]
  /** Name or id of a user of the environment. Default: the image's, else root. */
  readonly user?: string | number
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  readonly stdin?: string | Uint8Array
  readonly timeoutMs: number
  /**
   * Bytes of stdout, and of stderr, that are kept; the rest is counted. Default: 64 KiB; more than 16 MiB means 16 MiB.
   */
  readonly maxOutputBytes?: number
}

/**
 * Status of a command. ok: exit code 0. error: another exit code, or a signal. timeout: the deadline passed, and the
 * command's processes were killed, or still run in spite of the kill (`reason`). lost: the environment died or was
 * stopped meanwhile. rejected: the command was not started (`reason`).
 */
export type ExecStatus = 'ok' | 'error' | 'timeout' | 'lost' | 'rejected'

export interface ExecResult {
  readonly status: ExecStatus
  readonly exitCode: number | null
  readonly signal: number | null
  readonly stdout: Buffer
  readonly stderr: Buffer
  /** Bytes that the command wrote to stdout, kept or not. */
  readonly stdoutBytes: number
  /** Bytes that the command wrote to stderr, kept or not. */
  readonly stderrBytes: number
  readonly wallMs: number
  readonly reason?: string
}

/**
 * Names the files of an environment at one time. Over the same image, equal digests mean equal names, kinds, modes,
 * owners and contents.
 */
export interface Snapshot {
  readonly digest: string
  readonly files: number
  /** Size of the changed files in bytes. */
  readonly bytes: number
}

export interface Environment {
  readonly id: string
  /** Working directory of commands whose request has no `cwd`; absent for the driver `docker`. */
  readonly workdir?: string
  exec(request: ExecRequest, signal?: AbortSignal): Promise<ExecResult>
  /**
   * Copies a file or directory of this machine into the environment. A directory's contents are added to those of
   * `target`.
   */
  upload(source: string, target: string): Promise<void>
  /** Copies a file or directory of the environment to a path of this machine that does not exist yet. */
  download(source: string, target: string): Promise<void>
  snapshot(): Promise<Snapshot>
  /**
   * Kills all processes of the environment; its files stay, and can be downloaded. Commands are `lost` until a restart.
   */
  kill(): Promise<void>
  /** Kills all processes of the environment and starts it again with the files that it has. */
  restart(): Promise<void>
  /** Ends the environment and removes what is left of it. May be called twice. */
  stop(): Promise<void>
}

export interface EnvironmentDriver {
  readonly name: DriverName
  capabilities(): Promise<DriverCapabilities>
  /** Starts an environment: with the files of `spec.snapshot` if it is given, else with those of the image. */
  start(spec: EnvironmentSpec, signal?: AbortSignal): Promise<Environment>
  /** Starts an environment with the files that this one has now. Processes are not copied. */
  fork(environment: Environment): Promise<Environment>
  /** Removes environments whose Troupe process has died, and those of earlier epochs of this run. Returns their ids. */
  sweep(): Promise<readonly string[]>
  /** Stops every environment that this driver object started. */
  close(): Promise<void>
}
