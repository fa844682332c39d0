/**
 * Files of a rollout that acts in an environment: the task that the environment is made from, and the files after a
 * call.
 *
 * A snapshot holds what differs from the task's image: names, kinds, modes, owners, contents. Its digest names it in
 * the snapshot store of the machine that made it. A machine whose store lacks the snapshot starts from the latest
 * earlier one that it has, or from the task's image, and runs the recorded calls since then again.
 */

/**
 * Task whose rollouts act in an environment: the directory from which the environment's files are made, and how the
 * environment is run.
 */
export interface TaskEnvironment {
  /** Path of the task directory, in Harbor's format. */
  readonly directory: string
  /** Digest of the task directory's files. */
  readonly digest: string
  readonly driver: 'local' | 'oci' | 'docker'
  /** The task runs without the network that it asks for. Absent: it has the network that it asks for. */
  readonly network?: 'no-network'
  /** The task runs without the limit on disk space that it asks for. Absent: the limit is enforced. */
  readonly storage?: 'no-limit'
  /** Steps of a task that has several; absent: it has one. */
  readonly steps?: TaskSteps
}

/**
 * Steps of a task: each has an instruction and a verifier; `submit` ends a step, and its answer is the next
 * instruction.
 */
export interface TaskSteps {
  readonly count: number
  /** Upper bound on the time that `submit` takes, ms: the longest verifier's deadline and 600 s for the next set-up. */
  readonly timeoutMs: number
}

/** A step of a task, not its last one, ended with a call of `submit`, which ran the step's verifier. */
export interface StepEnd {
  readonly name: string
  /** Rewards by name, as the verifier wrote them. */
  readonly rewards: Readonly<Record<string, number>>
  /** True if no step follows: the reward is below the step's `min_reward`, or `fault` says what went wrong. */
  readonly over: boolean
  /**
   * Code and message of an error: the verifier gave no reward, the next step could not be set up, or `submit` ran out
   * of time. Absent: none of these happened.
   */
  readonly fault?: { readonly how: string; readonly why: string }
}

/** One path that a tool call added, changed or removed. */
export interface ChangedFile {
  readonly path: string
  readonly change: 'added' | 'changed' | 'removed'
  /** Size of the file in bytes after the change; 0 for a directory or a removed file. */
  readonly bytes: number
}

/** Files of an environment after a tool call that changed them. */
export interface FilesChanged {
  /** Digest of the snapshot after the call. Equal digests mean equal files. */
  readonly snapshot: string
  /** Digest of the snapshot before the call. */
  readonly before: string
  /** Number of paths that differ from the task's image. */
  readonly files: number
  /** Total size in bytes of the files that differ from the task's image. */
  readonly bytes: number
  /** The first 100 paths that the call changed, in order; `changes` is the number of all of them. */
  readonly changed: readonly ChangedFile[]
  readonly changes: number
  /**
   * Way in which the environment was made again before this call. snapshot: from the snapshot in the store. calls: by
   * running earlier calls again, which made the recorded files. other-files: by running them again, but they made other
   * files than recorded. Absent: the environment still existed, or no earlier call had changed files.
   */
  readonly restored?: RestoredFrom
}

export type RestoredFrom = 'snapshot' | 'calls' | 'other-files'

/** A tool call that has run in an environment. */
export interface PastCall {
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** Digest of the snapshot after the call; null: the call left the files as they were. */
  readonly snapshot: string | null
  /**
   * Step that this call ended. Present only for a call of `submit` in a task of several steps; absent for the last
   * step.
   */
  readonly step?: StepEnd
}

/** State of the files on which a tool call or a verifier works: those of the task's environment after `calls`. */
export interface EnvironmentAt {
  readonly task: TaskEnvironment
  /** All calls that have run in the environment, oldest first. */
  readonly calls: readonly PastCall[]
  /** Deadline of each of these calls if it is run again, ms; `submit` between two steps has the task's own. */
  readonly timeoutMs: number
}
