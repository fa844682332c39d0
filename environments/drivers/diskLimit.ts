/**
 * Says whether this machine can limit the disk space of an environment of the drivers `oci` and `local`
 * (keeper/disk.py).
 */
import { existsSync } from 'node:fs'

/** Hint for tasks with a limit on disk space that their driver cannot enforce: the options that drop the limit. */
export const withoutStorageLimit =
  'to run without the limit: --no-storage-limit of troupe tasks, --set environments.storage=no-limit of a run'

const programs = ['mkfs.ext4', 'mount']

/** True if this process is root and the machine has loop devices, mkfs.ext4 and mount. */
export const canLimitDisk = (): boolean =>
  process.geteuid?.() === 0 &&
  existsSync('/dev/loop-control') &&
  programs.every(name => ['/usr/sbin', '/sbin', '/usr/bin', '/bin'].some(folder => existsSync(`${folder}/${name}`)))
