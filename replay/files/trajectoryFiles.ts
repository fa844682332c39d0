/**
 * Files of a trajectory over its turns: what each tool call changed, and what the files were after a turn.
 *
 * in   the trajectory's facts, this machine's store of snapshots        out  changes with their text; files
 * Invariant: the facts say which paths changed, wherever the log is read. Contents come from the store, which may have
 * lost a snapshot or never had it: then they are absent, never made up.
 */
import { closeSync, constants, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { type ManifestEntry, readManifest, type Store } from '../../environments'
import { shellState } from '../../environments/tools/bash'
import type { CallFact, ChangedFile, FilesChanged, TrajectoryFact } from '../../messages/facts'
import { lineDiff } from './lineDiff'

type Facts = readonly (TrajectoryFact | CallFact)[]
type Layers = Pick<Store, 'root'>

/** Upper bound on the size of a file whose text is compared, in bytes. */
const mostBytes = 256 * 1024

/**
 * Diff lines of a file that a call changed; an added file is compared with an empty one, and so is a removed one.
 * Undefined if the store lacks a side, if a side is not a regular file, not UTF-8 or over 256 KiB, or if too much
 * differs (`lineDiff`).
 */
export function fileDiff(store: Layers, { before, snapshot }: FilesChanged, file: ChangedFile) {
  const was = file.change === 'added' ? '' : textIn(store, before, file.path)
  const is = file.change === 'removed' ? '' : textIn(store, snapshot, file.path)
  return was === undefined || is === undefined ? undefined : lineDiff(was, is)
}

/** Snapshot of the files after turn `turn` (default: the last); undefined if no call up to then changed a file. */
export function snapshotAfter(facts: Facts, turn = Number.POSITIVE_INFINITY): string | undefined {
  let last: string | undefined
  for (const fact of facts) if (fact.type === 'tool.completed' && fact.turn <= turn) last = fact.files?.snapshot ?? last
  return last
}

/** Entries of a snapshot, without the files of the shell's state; undefined if the store lacks the snapshot. */
export function filesIn(store: Layers, snapshot: string): readonly ManifestEntry[] | undefined {
  const manifest = readManifest(store, snapshot)
  return manifest && [...manifest.values()].filter(({ path }) => !path.startsWith(shellState))
}

/**
 * Content of the regular file `path` in a snapshot; undefined if the snapshot has no such file, or the store lacks it.
 */
export function bytesIn(store: Layers, snapshot: string, path: string): Buffer | undefined {
  if (readManifest(store, snapshot)?.get(path)?.kind !== 'file') return undefined
  let fd: number
  try {
    fd = openSync(join(store.root, 'layers', snapshot, path), constants.O_RDONLY | constants.O_NOFOLLOW)
  } catch {
    return undefined // removed meanwhile, or its name is no UTF-8
  }
  try {
    return readFileSync(fd)
  } finally {
    closeSync(fd)
  }
}

function textIn(store: Layers, snapshot: string, path: string): string | undefined {
  const bytes = bytesIn(store, snapshot, path)
  if (bytes === undefined || bytes.length > mostBytes) return undefined
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

export interface FileDifference {
  readonly path: string
  readonly a: 'absent' | 'present'
  readonly b: 'absent' | 'present'
  /** Diff lines; absent if a side is not a regular file, not UTF-8 or over 256 KiB, or if too much differs. */
  readonly lines?: readonly string[]
}

/**
 * Compares two snapshots (the files that differ from the task's image), without the shell's state; undefined if the
 * store lacks one of them. The result is empty for snapshots with equal files, also if different drivers made them.
 */
export function diffSnapshots(store: Layers, a: string, b: string): readonly FileDifference[] | undefined {
  const [left, right] = [filesIn(store, a), filesIn(store, b)]
  if (left === undefined || right === undefined) return undefined
  const byPath = (entries: readonly ManifestEntry[]) => new Map(entries.map(entry => [entry.path, entry]))
  const [was, is] = [byPath(left), byPath(right)]
  const paths = [...new Set([...was.keys(), ...is.keys()])].sort()
  return paths.flatMap((path): FileDifference[] => {
    const [x, y] = [was.get(path), is.get(path)]
    // Drivers write the fields of an entry in different orders.
    if (isDeepStrictEqual(x, y)) return []
    if (x?.kind === 'directory' && y?.kind === 'directory') return []
    const [before, after] = [x ? textIn(store, a, path) : '', y ? textIn(store, b, path) : '']
    const lines = before === undefined || after === undefined ? undefined : lineDiff(before, after)
    const state = (entry: ManifestEntry | undefined) => (entry === undefined ? 'absent' : 'present')
    return [{ path, a: state(x), b: state(y), ...(lines === undefined ? {} : { lines }) }]
  })
}
