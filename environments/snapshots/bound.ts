/**
 * Bounds the size of the store of snapshots: the snapshot that was used longest ago is removed first.
 *
 * in   the store, its largest size        out  a store of at most about that size, or larger if snapshots in use are
 * The size is measured again only after growth by `slack`; contents stored in the last `settleMs` are never removed.
 * Invariant: no snapshot is removed that a live environment of the drivers `oci` and `local` has mounted, or that an
 * image is made of. One that is about to be mounted may be removed: that start fails, and restore.ts repeats it.
 */
import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
  utimesSync,
} from 'node:fs'
import { join } from 'node:path'
import type { Store } from '../drivers/store'

/** Fraction of the bound by which the store may grow before it is measured again. */
const slack = 0.05
/** Assumed upper bound in ms on the time for storing a snapshot; newer files may be of one that is not complete yet. */
const settleMs = 60_000

export class SnapshotBound {
  private grown = Number.POSITIVE_INFINITY

  constructor(private readonly maxBytes: number) {}

  /**
   * Notes that a snapshot with `bytes` of files was stored. The first call, and then each after which the store may
   * have grown by `slack` of its bound, measures the store and removes snapshots beyond the bound. Returns the digests
   * of those removed.
   */
  added(store: Store, bytes: number, now: number): readonly string[] {
    // An upper bound: files that are in the store already count again.
    this.grown += bytes
    if (this.grown < this.maxBytes * slack) return []
    this.grown = 0
    return boundSnapshots(store, this.maxBytes, now - settleMs)
  }
}

/** Marks a snapshot as used now. */
export function touchSnapshot(store: Pick<Store, 'root'>, digest: string, now: number): void {
  try {
    utimesSync(join(store.root, 'layers', `${digest}.manifest`), now / 1000, now / 1000)
  } catch {
    // The snapshot has been removed meanwhile.
  }
}

/**
 * Removes snapshots until the stored contents take at most `maxBytes`, or only snapshots in use are left. Returns the
 * digests of those removed.
 * @param settledBefore files that were stored later than this, ms since 1970, are left alone
 */
export function boundSnapshots(store: Store, maxBytes: number, settledBefore: number): readonly string[] {
  const layers = join(store.root, 'layers')
  const objects = join(store.root, 'objects')
  let bytes = sizeOf(objects)
  if (bytes <= maxBytes) return []
  const kept = new Set([...imageLayers(store), ...mountedLayers(store)])
  const oldest = readdirSync(layers)
    .filter(name => /^[0-9a-f]{64}$/.test(name) && !kept.has(name))
    .map(name => ({ name, usedAt: timeOf(join(layers, `${name}.manifest`)) }))
    .sort((a, b) => a.usedAt - b.usedAt)
  const removed: string[] = []
  for (const { name } of oldest) {
    if (bytes <= maxBytes) break
    if (removeLayer(store, name)) removed.push(name)
    bytes -= dropUnused(objects, settledBefore)
  }
  return removed
}

/**
 * Renames a layer and removes it; one that was mounted meanwhile gets its name back. Returns true if it was removed.
 */
function removeLayer(store: Store, name: string): boolean {
  const layer = join(store.root, 'layers', name)
  const aside = join(store.root, 'layers', `.removed-${process.pid}-${name}`)
  try {
    renameSync(layer, aside)
  } catch {
    return false // another process removes it
  }
  if (mountedLayers(store).has(name)) {
    renameSync(aside, layer)
    return false
  }
  rmSync(`${layer}.manifest`, { force: true })
  rmSync(aside, { recursive: true, force: true })
  return true
}

/** Removes objects that no layer has; returns their size. */
function dropUnused(objects: string, settledBefore: number): number {
  let bytes = 0
  for (const name of readdirSync(objects)) {
    const info = lstatSync(join(objects, name), { throwIfNoEntry: false })
    // A recent object may belong to a snapshot that is just being taken.
    if (info === undefined || info.nlink > 1 || info.ctimeMs > settledBefore) continue
    unlinkSync(join(objects, name))
    bytes += info.size
  }
  return bytes
}

function sizeOf(objects: string): number {
  let bytes = 0
  for (const name of readdirSync(objects)) bytes += lstatSync(join(objects, name), { throwIfNoEntry: false })?.size ?? 0
  return bytes
}

function imageLayers({ images }: Store): readonly string[] {
  return readdirSync(images).flatMap(name => {
    const file = join(images, name, 'image.json')
    if (!existsSync(file)) return []
    const { layer } = JSON.parse(readFileSync(file, 'utf8')) as { readonly layer?: string }
    return layer === undefined ? [] : [layer]
  })
}

/** Digests of the layers that live environments have, or are about to have, mounted. */
function mountedLayers({ live }: Store): ReadonlySet<string> {
  const found = new Set<string>()
  for (const run of list(live))
    for (const epoch of list(join(live, run)))
      for (const id of list(join(live, run, epoch)))
        try {
          const file = join(live, run, epoch, id, 'keeper.json')
          const { lower } = JSON.parse(readFileSync(file, 'utf8')) as { readonly lower: readonly string[] }
          for (const path of lower) found.add(path.split('/').at(-1)!)
        } catch {
          // Without keeper.json: the environment is just being made, or removed.
        }
  return found
}

function list(directory: string): readonly string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

function timeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
}
