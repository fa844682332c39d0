/**
 * Paths of a run's files below `<directory>/runs/<run>`: its log if the bus is embedded, its blobs, its initial model.
 */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { RunId } from '../messages/ids'

export interface RunDirectory {
  readonly root: string
  /** Directory of the log on an embedded bus. */
  readonly log: string
  readonly blobs: string
  /** Directory of the initial model, if the run made one. */
  readonly model: string
}

export function runDirectory(directory: string, run: RunId): RunDirectory {
  const root = resolve(directory, 'runs', run)
  return { root, log: join(root, 'log'), blobs: join(root, 'blobs'), model: join(root, 'model') }
}

/** Lists the names of the runs in a directory, sorted. */
export function runsOf(directory: string): readonly string[] {
  const runs = join(resolve(directory), 'runs')
  return existsSync(runs) ? readdirSync(runs).sort() : []
}

/** Lists the names of the runs in a directory by the time of the last write to their logs, the latest last. */
export function runsByLastWrite(directory: string): readonly string[] {
  const written = (name: string) => {
    const file = join(resolve(directory), 'runs', name, 'log', 'data.mdb')
    return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
  }
  return runsOf(directory)
    .map(name => ({ name, at: written(name) }))
    .sort((a, b) => a.at - b.at) // the sort is stable: runs of the same time stay sorted by name
    .map(({ name }) => name)
}

/**
 * Returns the directory in which an address keeps its runs' files. For a memory bus and Kafka it is `given`, else the
 * directory of the default bus.
 */
export function directoryOf(address: string, given?: string): string {
  return address.startsWith('lmdb:') ? address.slice('lmdb:'.length) : (given ?? '.troupe')
}
