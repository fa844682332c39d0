/**
 * Driver `oci`: an overlay over an unpacked OCI image, in namespaces of its own; no daemon, no container runtime.
 *
 * in   specifications with the name of an image in the store        out  environments
 * Invariant: an image is never written. The keeper makes namespaces, cgroups and mounts itself (keeper/first.py):
 * `runc run` alone took 80 ms, the whole budget of a start. Commands have fewer capabilities than Docker's default and,
 * where libseccomp is installed, a seccomp filter of system calls (keeper/kernel.py).
 */
import { readFileSync } from 'node:fs'
import { canLimitDisk } from './diskLimit'
import type { DriverCapabilities } from './driver'
import { environmentError } from './errors'
import { type DriverOptions, KeptDriver } from './keptDriver'
import { machineMissing, probe } from './probe'
import { findImage } from './store'

/** Number of the capability CAP_SYS_ADMIN. */
const sysAdmin = 21n

/** Returns why this machine cannot run the driver `oci`; undefined: it can. */
export function ociMissing(): string | undefined {
  const missing = machineMissing()
  if (missing !== undefined) return missing
  if (process.geteuid?.() !== 0) return 'it needs root'
  const [, effective = '0'] = /^CapEff:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? []
  if (((BigInt(`0x${effective}`) >> sysAdmin) & 1n) === 0n) return 'it needs the capability CAP_SYS_ADMIN'
  const lacking = probe().missing
  return lacking.length === 0 ? undefined : lacking.join('; ')
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
  const missing = ociMissing()
  if (missing !== undefined)
    throw environmentError('environment.unavailable', `the driver oci cannot run here: ${missing}`, {
      hint: 'tasks without an image can use --driver local; docs/tasks.md says what each driver needs',
    })
  return new KeptDriver(
    {
      name: 'oci',
      capabilities: async () => ociCapabilities(),
      prepare: (spec, store) => {
        if (spec.image === undefined)
          throw environmentError('environment.no_image', 'the driver oci needs an image, and the task names none')
        const { rootfs, layer, defaults } = findImage(store, spec.image)
        return { lower: rootfs, ...(layer === undefined ? {} : { layer }), defaults }
      },
    },
    options,
  )
}
