/**
 * Files of a rollout that acts in an environment: which task the environment is made from, and what a tool call left in it.
 *
 * A snapshot holds what differs from the task's image: names, kinds, modes, owners, contents. Its digest names it in the
 * store of snapshots of the machine that made it. Where the store no longer has it, the recorded calls make it again.
 */

/** Source of an environment's files. A task that has one is worked on with tools that act in the environment. */
export interface TaskEnvironment {
  /** Path of the task directory, in Harbor's format. */
  readonly directory: string
  /** Digest of the task directory's files. */
  readonly digest: string
  readonly driver: 'local' | 'oci'
}

/** One path that a tool call added, changed or removed. */
export interface ChangedFile {
  readonly path: string
  readonly change: 'added' | 'changed' | 'removed'
  /** Size after the change; 0 for a directory or a removed file. */
  readonly bytes: number
}

/** Files of an environment after a tool call that changed them. */
export interface FilesChanged {
  /** Digest of the snapshot. Equal digests mean equal files. */
  readonly snapshot: string
  /** Snapshot before the call. */
  readonly before: string
  /** Number of paths that differ from the task's image, and the size of those files. */
  readonly files: number
  readonly bytes: number
  /** The first 100 changed paths, in order; `changes` is the number of all. */
  readonly changed: readonly ChangedFile[]
  readonly changes: number
  /**
   * The environment was made again for this call. snapshot: from the store. calls: by running earlier calls again, with equal
   * files. other-files: by running earlier calls again, which made other files than those recorded.
   */
  readonly restored?: RestoredFrom
}

export type RestoredFrom = 'snapshot' | 'calls' | 'other-files'

/** A tool call that has run in an environment. */
export interface PastCall {
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
  /** Snapshot after the call; null: the call left the files as they were. */
  readonly snapshot: string | null
}

/** Place at which a call or a verifier finds the files: an environment of the task, after these calls. */
export interface EnvironmentAt {
  readonly task: TaskEnvironment
  /** All calls that have run in the environment, oldest first. */
  readonly calls: readonly PastCall[]
  /** Deadline of each of these calls, ms. */
  readonly timeoutMs: number
}
