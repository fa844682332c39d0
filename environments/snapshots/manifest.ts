/**
 * Reads manifests of snapshots, which list what differs from the image, and compares two of them.
 *
 * in   digests of snapshots in the store        out  their entries; the paths at which two snapshots differ
 * Invariant: the paths leave out the saved shell state of the tool `bash`. A path that is a directory afterwards is among
 * them only if it was added, or if both snapshots list it, with different modes or the first one not as a directory.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { ChangedFile } from '../../messages/facts'
import { hasSnapshot, type Store } from '../drivers/store'
import { shellState } from '../tools/bash'

export interface ManifestEntry {
  readonly path: string
  readonly kind: 'file' | 'directory' | 'link' | 'fifo' | 'deleted'
  readonly mode?: number
  readonly bytes?: number
  readonly sha256?: string
  readonly to?: string
}

export type Manifest = ReadonlyMap<string, ManifestEntry>

/** Entries of a snapshot by path; undefined if the store does not have it. */
export function readManifest(store: Pick<Store, 'root'>, digest: string): Manifest | undefined {
  if (!hasSnapshot(store, digest)) return undefined
  try {
    const text = readFileSync(join(store.root, 'layers', `${digest}.manifest`), 'utf8')
    const entries = text
      .split('\n')
      .filter(line => line !== '')
      .map(line => JSON.parse(line) as ManifestEntry)
    return new Map(entries.map(entry => [entry.path, entry]))
  } catch {
    return undefined // another process has removed the snapshot meanwhile
  }
}

/** Paths at which `after` differs from `before`, sorted. @param inImage returns true if the image has the path */
export function changesBetween(before: Manifest, after: Manifest, inImage: (path: string) => boolean): ChangedFile[] {
  const changed: ChangedFile[] = []
  for (const path of [...new Set([...before.keys(), ...after.keys()])].sort()) {
    if (path.startsWith(shellState)) continue
    const [was, is] = [before.get(path), after.get(path)]
    const existed = was === undefined ? inImage(path) : was.kind !== 'deleted'
    const exists = is === undefined ? inImage(path) : is.kind !== 'deleted'
    if (isDeepStrictEqual(was, is) || (!existed && !exists)) continue
    const isDirectory = (is ?? was)?.kind === 'directory'
    const change = !existed ? 'added' : !exists ? 'removed' : 'changed'
    // Overlayfs copies the directories above a changed file, so a snapshot also lists directories that did not change.
    if (change === 'changed' && isDirectory && (was === undefined || (was.kind === is?.kind && was.mode === is.mode)))
      continue
    changed.push({ path, change, bytes: is?.bytes ?? 0 })
  }
  return changed
}
