/**
 * Says whether a Docker engine on this machine can limit the disk space of a container (`--storage-opt size=`): the
 * storage driver overlay2 does so where the engine's data lies on xfs mounted with project quotas.
 *
 * Where this says true and the engine still cannot (another storage driver), the engine refuses to create the
 * container.
 */
import { readFileSync } from 'node:fs'
import { engineAddress } from './engine'

/** True for an engine behind a Unix socket whose data lies on xfs mounted with pquota. */
export const canLimitStorage = (address = engineAddress()): boolean =>
  address?.startsWith('unix:') === true && hasProjectQuota(dataRoot(), textOf('/proc/self/mounts'))

/** True if the path lies on xfs mounted with project quotas. @param mounts lines of /proc/self/mounts */
export function hasProjectQuota(path: string, mounts: string): boolean {
  const [, , type, options] = mounts
    .split('\n')
    .map(line => line.split(' '))
    .filter(([, point]) => point !== undefined && `${path}/`.startsWith(point === '/' ? '/' : `${point}/`))
    // The mount with the longest path covers the others; of two on one path, the later one.
    .reduce((best, one) => (one[1]!.length >= (best[1] ?? '').length ? one : best), [] as string[])
  return type === 'xfs' && (options ?? '').split(',').some(option => option === 'prjquota' || option === 'pquota')
}

/** Directory of the engine's data: `data-root` of its configuration, else the default. */
function dataRoot(): string {
  try {
    const { 'data-root': root } = JSON.parse(textOf('/etc/docker/daemon.json')) as { 'data-root'?: string }
    return root ?? usualRoot
  } catch {
    return usualRoot
  }
}

const usualRoot = '/var/lib/docker'

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
