/**
 * Directories of environments on the disk, below `<TROUPE_HOME>/environments` unless the caller names another
 * directory.
 *
 *   images/<name>/rootfs, image.json     images; one that was built here has no rootfs, but a layer over its base
 *   layers/<digest>, objects/            snapshots, layers of images that were built here
 *   live/<run>/<epoch>/<id>              an environment, while it lives; owner.json names the process that owns it
 *   docker/, local-root-1/               the drivers' own files
 *
 * Invariant: everything is in one file system, so that snapshots can share files by hard links. Directories that are
 * made here have the mode 700: other users cannot read them.
 */
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { troupeHome } from '../../runtime/home'
import { environmentError } from './errors'
import type { ImageDefaults } from './keptEnvironment'

export interface Store {
  readonly root: string
  readonly images: string
  readonly live: string
}

/** True if the store has the snapshot's files. */
export const hasSnapshot = (store: Pick<Store, 'root'>, digest: string): boolean =>
  /^[0-9a-f]{64}$/.test(digest) && existsSync(join(store.root, 'layers', digest))

/** Directory of the store that rollouts use. */
export const snapshotsRoot = (): string => join(troupeHome(), 'environments')

/** Paths of the store in a directory, which need not exist. */
export const storeAt = (directory = snapshotsRoot()): Store => ({
  root: directory,
  images: join(directory, 'images'),
  live: join(directory, 'live'),
})

/** Makes those of the store's directories that are missing, and returns the store. */
export function openStore(directory = snapshotsRoot()): Store {
  const store = storeAt(directory)
  for (const path of [directory, store.images, store.live, join(directory, 'layers'), join(directory, 'objects')])
    mkdirSync(path, { recursive: true, mode: 0o700 })
  return store
}

/** Path of an image's directory. The image's name is encoded, since it may have slashes and colons (`org/name:tag`). */
export const imageDirectory = (store: Store, name: string): string => join(store.images, encodeURIComponent(name))

export interface Image {
  /** Id of the image's files: equal ids mean equal files. */
  readonly id: string
  readonly rootfs: string
  /** Digest of the layer over `rootfs`, for an image that was built here. */
  readonly layer?: string
  readonly defaults: ImageDefaults
}

/** True if the store has an image of this name, unpacked from an archive or built here. */
export const hasImage = (store: Store, name: string): boolean =>
  name !== '' && existsSync(join(imageDirectory(store, name), 'image.json'))

/** Base of images built for the driver `local`: the machine's programs. No image has this name: it contains a space. */
export const localBase = 'local programs'
export const localDefaults: ImageDefaults = { env: { LANG: 'C.UTF-8' }, workdir: '/app' }

/** Finds an image by its name. @throws TroupeError environment.no_image if the store lacks it or its base image */
export function findImage(store: Store, name: string): Image {
  const directory = imageDirectory(store, name)
  if (!existsSync(join(directory, 'image.json')))
    throw environmentError('environment.no_image', `no unpacked image '${name}' in ${store.images}`, {
      hint: `docker save ${name} -o FILE.tar; troupe tasks image FILE.tar --name ${name}`,
    })
  const {
    archive,
    base,
    layer,
    env = {},
    workdir = '/',
    user,
  } = JSON.parse(readFileSync(join(directory, 'image.json'), 'utf8'))
  const defaults = { env, workdir, ...(user ? { user } : {}) }
  if (base === localBase) return { id: `${localBase} ${layer}`, rootfs: '', layer, defaults }
  if (base === undefined) return { id: archive ?? name, rootfs: join(directory, 'rootfs'), defaults }
  const below = findImage(store, base)
  return { id: `${below.id} ${layer}`, rootfs: below.rootfs, layer, defaults }
}

/** Directory of a snapshot's files. @throws TroupeError environment.no_image */
export function findLayer(store: Store, digest: string): string {
  const layer = join(store.root, 'layers', digest)
  if (/^[0-9a-f]{64}$/.test(digest) && existsSync(layer)) return layer
  throw environmentError('environment.no_image', `no snapshot ${digest} in ${store.root}/layers`, {
    hint: 'it was made on another machine, or removed',
  })
}
