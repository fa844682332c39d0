/**
 * Disks of a few MiB: tmpfs mounts in a mount namespace of their own, which nothing outside sees and which end with
 * their process.
 *
 * in   a directory, a size, a command      out  the command in front of which the disk is mounted
 * Invariant: if mounting is not permitted, `canMount` is false and tests are skipped by name.
 */
import { spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'

const namespace = process.getuid?.() === 0 ? ['-m'] : ['-rm']

export const canMount = spawnSync('unshare', [...namespace, 'mount', '-t', 'tmpfs', 'none', tmpdir()]).status === 0

/** Returns a command line that mounts a disk of `megabytes` MiB at the existing `directory`, then runs `command`. */
export const onSmallDisk = (directory: string, megabytes: number, ...command: readonly string[]): readonly string[] => [
  ...['unshare', ...namespace, 'sh', '-c', `mount -t tmpfs -o size=${megabytes}m none "$0" && exec "$@"`, directory],
  ...command,
]

/** Returns the words to put before a command so that it sees the disks that process `pid` has mounted. */
export const seeingDisksOf = (pid: number): readonly string[] => [
  ...['nsenter', ...(namespace[0] === '-m' ? [] : ['-U', '--preserve-credentials']), '-m', '-t', String(pid)],
]

/** Path by which this process sees a file of a process in another mount namespace. */
export const seenFrom = (pid: number, path: string): string => `/proc/${pid}/root${path}`
