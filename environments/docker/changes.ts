/**
 * Reads how a container's files differ from its image, as a manifest whose digest names a snapshot.
 *
 * in   the Docker engine's list of changes, tar streams of the changed paths; the manifest of the snapshot from which
 *      the container started, empty if it started from an image
 * out  a manifest: by path its kind, mode, owner and digest of the content, or `gone`; contents of files, to `Contents`
 * Invariant: equal digests mean equal files over equal images; times do not count. If an environment began from a
 * snapshot, its own snapshots hold that snapshot's changes too: a fork that changed nothing has its origin's digest.
 */
import { createHash } from 'node:crypto'
import type { ManifestEntry } from '../snapshots/manifest'
import type { Engine } from './engine'
import { readTar, type TarEntry } from './tar'

export interface Entry {
  /** Kind, mode, owner, link target, digest of the content and device number; `gone` for a deleted path. */
  readonly is: string
  readonly bytes: number
  /** True: the image has nothing at this path. */
  readonly isNew: boolean
  /** The path's entry in the form that the other drivers' snapshot manifests use. */
  readonly entry: ManifestEntry
}

/** Stores the contents of changed files: gets the bytes of a file in parts, then the SHA-256 digest of the file. */
export interface Contents {
  part(bytes: Buffer): void
  end(digest: string): void
}

export type Manifest = ReadonlyMap<string, Entry>

interface Change {
  readonly Path: string
  /** 0: modified, 1: added, 2: deleted. */
  readonly Kind: 0 | 1 | 2
}

const gone = 'gone'

/** Reads a container's changes. The caller must pause it or kill its processes first, so that no file changes. */
export async function changesOf(
  engine: Engine,
  container: string,
  below: Manifest,
  contents: Contents,
): Promise<Manifest> {
  const changes = (await engine.call<Change[] | null>('GET', `/containers/${container}/changes`)) ?? []
  const manifest = new Map(below)
  const forget = (path: string) => {
    for (const known of manifest.keys()) if (known === path || known.startsWith(`${path}/`)) manifest.delete(known)
  }
  for (const { Path } of changes.filter(({ Kind }) => Kind === 2)) {
    const was = below.get(Path)
    forget(Path)
    if (was?.isNew !== true)
      manifest.set(Path, { is: gone, bytes: 0, isNew: false, entry: { path: Path, kind: 'deleted' } })
  }
  const present = changes.filter(({ Kind }) => Kind !== 2)
  const added = new Set(present.filter(({ Kind }) => Kind === 1).map(({ Path }) => Path))
  for (const { Path, Kind } of present) {
    // The tar stream of an added directory holds everything below it.
    if (Kind === 1 && hasAncestor(added, Path)) continue
    const above = Path.slice(0, Path.lastIndexOf('/'))
    // In its list of changes the engine replaces bytes of a name that are not UTF-8 by U+FFFD. It cannot find a path
    // with U+FFFD, so the directory above that path is read instead.
    const isUnknown = Path.includes('\ufffd')
    const query = { path: isUnknown ? above || '/' : Path }
    const stream = await engine.raw('GET', `/containers/${container}/archive`, { query, deadlineMs: 600_000 })
    const parent = isUnknown ? above.slice(0, above.lastIndexOf('/') + 1) : `${above}/`
    for await (const found of readTar(stream, part => contents.part(part))) {
      if (found.kind === 'file') contents.end(found.digest)
      const path = isUnknown && above === '' ? `/${found.name.replace(/^\.?\//, '')}` : parent + found.name
      if (isUnknown && !isAtOrBelow(wellFormed(path), Path)) continue
      const was = below.get(path)
      if (found.kind !== 'directory' && was?.entry.kind === 'directory') forget(path)
      const isNew = was === undefined ? Kind === 1 : was.isNew
      manifest.set(path, { is: textOf(found), bytes: found.size, isNew, entry: entryOf(path, parent, found, manifest) })
      if (Kind === 0 && !isUnknown) break // a modified directory: the engine lists each change below it separately
    }
    stream.destroy()
  }
  return manifest
}

function hasAncestor(paths: ReadonlySet<string>, path: string): boolean {
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1))
    if (paths.has(path.slice(0, at))) return true
  return false
}

const isAtOrBelow = (path: string, top: string) => path === top || path.startsWith(`${top}/`)
const wellFormed = (path: string) => path.replace(/[\udc80-\udcff]/g, '\ufffd')

function entryOf(path: string, parent: string, found: TarEntry, manifest: Manifest): ManifestEntry {
  const { kind, mode, uid, gid, size, digest, link } = found
  const owned = { path, mode, uid, gid }
  switch (kind) {
    case 'file':
      return { ...owned, kind, bytes: size, sha256: digest }
    case 'hard': {
      const { bytes = 0, sha256 = '' } = manifest.get(parent + link)?.entry ?? {}
      return { ...owned, kind: 'file', bytes, sha256 }
    }
    case 'link':
      return { path, kind, to: link }
    case 'directory':
      return { ...owned, kind }
    case 'other':
      return { ...owned, kind: 'fifo' }
  }
}

const textOf = ({ kind, mode, uid, gid, link, digest, device }: TarEntry) =>
  [kind, mode.toString(8), uid, gid, link, digest, device].join(' ')

export function digestOf(image: string, manifest: Manifest): string {
  const sha = createHash('sha256').update(image)
  for (const path of [...manifest.keys()].sort()) sha.update(`\0${path}\0${(manifest.get(path) as Entry).is}`)
  return sha.digest('hex')
}
