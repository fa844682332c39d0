/**
 * Says whether a Docker engine on this machine can limit the disk space of a container (`--storage-opt size=`): the
 * storage driver overlay2 does so where the engine's data lies on xfs mounted with project quotas.
 */
import { readFileSync } from 'node:fs'

/** Fields of the Docker engine's answer to `GET /info` on which the limit depends. */
export interface EngineStorage {
  /** The storage driver, such as overlay2. */
  readonly Driver: string
  /** Directory of the engine's data, on the engine's machine. */
  readonly DockerRootDir: string
}

/**
 * Returns why the Docker engine cannot limit disk space; undefined: it can. @param mounts lines of /proc/self/mounts of
 * this machine
 */
export function storageLimitMissing(
  { Driver, DockerRootDir }: EngineStorage,
  address: string,
  mounts = textOf('/proc/self/mounts'),
): string | undefined {
  if (!address.startsWith('unix:'))
    return `the engine at ${address} may run on another machine, whose file systems are not known here`
  // Other storage drivers, and containerd's snapshotters, may ignore the limit.
  if (Driver !== 'overlay2') return `the engine's storage driver is ${Driver}, not overlay2`
  const { type, options } = mountOf(DockerRootDir, mounts)
  const hasQuota = options.some(option => option === 'prjquota' || option === 'pquota')
  if (type === 'xfs' && hasQuota) return undefined
  const found = type === 'xfs' ? 'xfs mounted without pquota' : (type ?? 'a file system that is not mounted here')
  return `the engine's data in ${DockerRootDir} lies on ${found}, not on xfs mounted with pquota`
}

/** Type and options of the file system that holds the path. */
function mountOf(path: string, mounts: string): { readonly type?: string; readonly options: readonly string[] } {
  const [, , type, options = ''] = mounts
    .split('\n')
    .map(line => line.split(' '))
    .filter(([, point]) => point !== undefined && `${path}/`.startsWith(point === '/' ? '/' : `${point}/`))
    // The path lies on the mount with the longest mount point above it; of two mounts at one point, on the later one.
    .reduce((best, one) => (one[1]!.length >= (best[1] ?? '').length ? one : best), [] as string[])
  return { ...(type === undefined ? {} : { type }), options: options.split(',') }
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
