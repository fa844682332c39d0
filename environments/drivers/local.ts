/**
 * Driver `local`: commands in namespaces that hold the machine's own programs, read-only, and files of the task. For
 * tasks that need no image, or whose Dockerfile can be built over the machine's programs in place of those of its FROM.
 *
 * in   specifications without an image, or with one that was built here
 * out  environments with /usr and parts of /etc of this machine
 * Invariant: commands see nothing else of this machine: no home, no /etc/shadow, no network but an allowlist's proxy.
 * Where Troupe does not run as root, commands run as root of a user namespace, and no cgroup limits CPUs, memory and
 * processes.
 */
import { existsSync, lstatSync, mkdirSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { canLimitDisk } from './diskLimit'
import type { DriverCapabilities } from './driver'
import { environmentError } from './errors'
import { type DriverOptions, KeptDriver } from './keptDriver'
import { machineMissing } from './probe'
import { findImage, localDefaults, type Store } from './store'

const isRoot = () => process.geteuid?.() === 0

export const localCapabilities = (): DriverCapabilities => ({
  driver: 'local',
  images: ['none', 'dockerfile'],
  networks: ['no-network', 'allowlist'],
  limits: [
    ...(isRoot() && existsSync('/sys/fs/cgroup') ? (['cpus', 'memoryMb', 'processes'] as const) : []),
    ...(canLimitDisk() ? (['storageMb'] as const) : []),
  ],
  users: isRoot(),
  snapshots: true,
})

/** Makes the driver. @throws TroupeError environment.unavailable if this is not Linux on x86_64 or aarch64 */
export function localDriver(options: DriverOptions): KeptDriver {
  const missing = machineMissing()
  if (missing !== undefined)
    throw environmentError('environment.unavailable', `the driver local cannot run here: ${missing}`, {
      hint: '--driver docker asks a Docker engine, which may run on another machine',
    })
  return new KeptDriver(
    {
      name: 'local',
      capabilities: async () => localCapabilities(),
      prepare: ({ image }, store) => {
        const found = image === undefined ? undefined : findImage(store, image)
        return {
          lower: skeleton(store),
          ...(found?.layer === undefined ? {} : { layer: found.layer }),
          defaults: found?.defaults ?? localDefaults,
        }
      },
    },
    options,
  )
}

/** Makes the directories, links and settings around the machine's programs, once for each store. Returns their root. */
function skeleton(store: Store): string {
  const root = join(store.root, 'local-root-1')
  if (existsSync(join(root, '.made'))) return root
  const directories = [
    'usr',
    'proc',
    'dev',
    'etc',
    'app',
    'home/agent',
    'root',
    'var/tmp',
    'run',
    'opt',
    'srv',
    'mnt',
    'logs/agent',
    'logs/verifier',
    'logs/artifacts',
    'tmp',
  ]
  for (const path of directories) mkdirSync(join(root, path), { recursive: true, mode: 0o755 })
  for (const path of ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32']) {
    const info = lstatSync(path, { throwIfNoEntry: false })
    if (info?.isSymbolicLink() && !existsSync(join(root, path))) symlinkSync(readlinkSync(path), join(root, path))
    else if (info?.isDirectory()) mkdirSync(join(root, path), { recursive: true })
  }
  for (const path of ['alternatives', 'ld.so.conf.d', 'ssl/certs', 'python3'])
    mkdirSync(join(root, 'etc', path), { recursive: true })
  const users = [
    'root:x:0:0:root:/root:/bin/bash',
    'agent:x:1000:1000::/home/agent:/bin/bash',
    'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin',
  ]
  const groups = ['root:x:0:', 'agent:x:1000:', 'nogroup:x:65534:']
  const files: Readonly<Record<string, string>> = {
    passwd: `${users.join('\n')}\n`,
    group: `${groups.join('\n')}\n`,
    hosts: '127.0.0.1 localhost\n::1 localhost\n',
    hostname: 'environment\n',
    'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files\n',
    'ld.so.cache': '',
    'ld.so.conf': '',
    localtime: '',
    'mime.types': '',
    services: '',
    protocols: '',
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(root, 'etc', name), text)
  chmodAll(root)
  writeFileSync(join(root, '.made'), '')
  return root
}

function chmodAll(root: string): void {
  const { chmodSync, chownSync } = require('node:fs') as typeof import('node:fs')
  for (const path of ['tmp', 'var/tmp']) chmodSync(join(root, path), 0o1777)
  chmodSync(join(root, 'root'), 0o700)
  if (isRoot()) for (const path of ['app', 'home/agent']) chownSync(join(root, path), 0, 0)
  if (isRoot()) chownSync(join(root, 'home/agent'), 1000, 1000)
}
