/**
 * Driver `oci`: runc on an overlay over an unpacked OCI image; no daemon.
 *
 * in   specifications with the name of an image in the store        out  environments
 * Invariant: an image is never written. runc makes namespaces, cgroups and mounts; commands are started by the keeper
 * inside them, with fewer capabilities than Docker's default and, where libseccomp is installed, a filter of system
 * calls (keeper/kernel.py).
 */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { canLimitDisk } from './diskLimit'
import type { DriverCapabilities } from './driver'
import { environmentError } from './errors'
import { type DriverOptions, KeptDriver } from './keptDriver'
import { ociSpec } from './ociSpec'
import { findImage } from './store'

/** Says why this machine cannot run the driver; undefined: it can. */
export function ociMissing(runc = findRunc()): string | undefined {
  if (process.platform !== 'linux') return 'it needs Linux'
  if (process.geteuid?.() !== 0) return 'it needs root'
  return runc === undefined ? 'runc is not installed (apt-get install runc)' : undefined
}

export const ociCapabilities = (): DriverCapabilities => ({
  driver: 'oci',
  images: ['image', 'dockerfile'],
  networks: ['no-network', 'allowlist'],
  limits: ['cpus', 'memoryMb', 'processes', ...(canLimitDisk() ? ['storageMb' as const] : [])],
  users: true,
  snapshots: true,
})

/** Makes the driver. @throws TroupeError environment.unavailable if this machine cannot run it (`ociMissing`) */
export function ociDriver(options: DriverOptions): KeptDriver {
  const runc = findRunc()
  const missing = ociMissing(runc)
  if (missing !== undefined || runc === undefined)
    throw environmentError('environment.unavailable', `the driver oci cannot run here: ${missing}`, {
      hint: 'tasks without an image can use --driver local; docs/tasks.md says what each driver needs',
    })
  return new KeptDriver(
    {
      name: 'oci',
      runc,
      capabilities: async () => ociCapabilities(),
      prepare: (spec, store, { directory, name }) => {
        if (spec.image === undefined)
          throw environmentError('environment.no_image', 'the driver oci needs an image, and the task names none')
        const { rootfs, layer, defaults } = findImage(store, spec.image)
        writeFileSync(join(directory, 'config.json'), JSON.stringify(ociSpec({ name, limits: spec.limits })))
        return {
          lower: rootfs,
          ...(layer === undefined ? {} : { layer }),
          defaults,
          keeper: { runc, state: store.state },
        }
      },
    },
    options,
  )
}

function findRunc(): string | undefined {
  try {
    const path = `${process.env.PATH ?? ''}:/usr/sbin:/sbin`
    return execFileSync('sh', ['-c', 'command -v runc'], { encoding: 'utf8', env: { PATH: path } }).trim()
  } catch {
    return undefined
  }
}
