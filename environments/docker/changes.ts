/**
 * Reads how a container's files differ from its image, as a manifest whose digest names a snapshot.
 *
 * in   the engine's list of changes, tar streams of the changed paths; the manifest of the snapshot below, or none
 * out  path → kind, mode, owner and digest of the content (or `gone`)
 * Invariant: equal digests mean equal files over equal images; times do not count. A snapshot of an environment that
 * began from a snapshot has the changes of both, so a fork that changed nothing has the digest of its origin.
 */
import { createHash } from 'node:crypto'
import type { Engine } from './engine'
import { readTar, type TarEntry } from './tar'

export interface Entry {
  /** Kind, mode, owner, link target, digest of the content and device number; `gone` for a deleted path. */
  readonly is: string
  readonly bytes: number
  /** True: the image has nothing at this path. */
  readonly isNew: boolean
}

export type Manifest = ReadonlyMap<string, Entry>

interface Change {
  readonly Path: string
  /** 0: modified, 1: added, 2: deleted. */
  readonly Kind: 0 | 1 | 2
}

const gone = 'gone'

/** Reads the changes of a container. Its files must not change meanwhile: it is paused, or its processes are dead. */
export async function changesOf(engine: Engine, container: string, below: Manifest): Promise<Manifest> {
  const changes = (await engine.call<Change[] | null>('GET', `/containers/${container}/changes`)) ?? []
  const manifest = new Map(below)
  const forget = (path: string) => {
    for (const known of manifest.keys()) if (known === path || known.startsWith(`${path}/`)) manifest.delete(known)
  }
  for (const { Path } of changes.filter(({ Kind }) => Kind === 2)) {
    const was = below.get(Path)
    forget(Path)
    if (was?.isNew !== true) manifest.set(Path, { is: gone, bytes: 0, isNew: false })
  }
  const present = changes.filter(({ Kind }) => Kind !== 2)
  const added = new Set(present.filter(({ Kind }) => Kind === 1).map(({ Path }) => Path))
  for (const { Path, Kind } of present) {
    // An added directory's stream holds everything below it.
    if (Kind === 1 && hasAncestor(added, Path)) continue
    const stream = await engine.raw('GET', `/containers/${container}/archive`, {
      query: { path: Path },
      deadlineMs: 600_000,
    })
    const parent = Path.slice(0, Path.lastIndexOf('/') + 1)
    for await (const entry of readTar(stream)) {
      const path = parent + entry.name
      const was = below.get(path)
      const isNew = was === undefined ? Kind === 1 : was.isNew
      manifest.set(path, { is: textOf(entry), bytes: entry.size, isNew })
      if (Kind === 0) break // a modified directory: what is below it and changed is listed itself
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

const textOf = ({ kind, mode, uid, gid, link, digest, device }: TarEntry) =>
  [kind, mode.toString(8), uid, gid, link, digest, device].join(' ')

export function digestOf(image: string, manifest: Manifest): string {
  const sha = createHash('sha256').update(image)
  for (const path of [...manifest.keys()].sort()) sha.update(`\0${path}\0${(manifest.get(path) as Entry).is}`)
  return sha.digest('hex')
}
