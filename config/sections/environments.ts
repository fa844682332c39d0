/**
 * Environments of rollouts that act on files. The section has no default, so that the digests of recipes without it
 * stay the same; `environmentSettings` fills in its fields.
 */
import { z } from 'zod'
import { positive } from './numbers'

const settings = z.strictObject({
  /**
   * Driver of the tasks' environments. auto: local for a task without an image, oci for a task with one. If oci cannot
   * run here or does not have the base image, local runs a task whose Dockerfile has no RUN.
   */
  driver: z.enum(['auto', 'local', 'oci', 'docker']).default('auto'),
  /** task: each task has the network that its task.toml names, if any. no-network: no task has a network. */
  network: z.enum(['task', 'no-network']).default('task'),
  /**
   * no-limit: the limit on disk space that a task names is not enforced. task: it is enforced, or the task is refused.
   * No default, so that the digests of recipes with this section stay the same; absent means task.
   */
  storage: z.enum(['task', 'no-limit']).optional(),
  /** Upper bound on the size of the snapshot store, MiB. Above it, the least recently used snapshots are removed. */
  snapshotMb: positive.default(4096),
  /**
   * Number of environments of one process at which the least recently used idle one is ended before a new one starts.
   */
  live: positive.max(1024).default(32),
  /** Milliseconds without a call after which an environment is ended; its files are in a snapshot. */
  idleMs: positive.default(120_000),
  /** Names of variables of Troupe's process that tasks may read. */
  env: z.array(z.string()).default([]),
})

export const environmentsSection = settings.optional()

export type EnvironmentSettings = z.output<typeof settings>

export const environmentSettings = (given: EnvironmentSettings | undefined): EnvironmentSettings =>
  given ?? settings.parse({})
