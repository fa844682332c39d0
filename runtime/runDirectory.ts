/**
 * Paths of a run's files below `<directory>/runs/<run>`: its log if the bus is embedded, its blobs, its initial model.
 */
import { type Dirent, readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isRunId, type RunId } from '../messages/ids'
import { pathKind, unreadable } from './disk/pathKind'
import { TroupeError } from './errors'

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

/**
 * Lists the names of the runs in `directory`, sorted: the directories, and links to directories, that its folder `runs`
 * holds under a valid name. Other files there are none of Troupe's. A link that cannot be followed for lack of a right
 * counts as a run.
 * @throws TroupeError run.bad_directory when `runs` is there and cannot be listed
 */
export function runsOf(directory: string): readonly string[] {
  const runs = join(resolve(directory), 'runs')
  if (pathKind(runs).kind === 'nothing') return []
  const why = unreadable(runs, 'directory')
  if (why !== undefined) {
    throw new TroupeError('run.bad_directory', {
      boundary: 'config',
      retriable: false,
      message: `${runs} ${why}; expected the directory of the runs`,
      hint: 'name the directory that contains `runs`, as lmdb:DIR, or make this one readable',
    })
  }
  return readdirSync(runs, { withFileTypes: true })
    .filter(entry => isRunId(entry.name) && (entry.isDirectory() || (!entry.isFile() && mayBeDirectory(entry))))
    .map(({ name }) => name)
    .sort()
}

function mayBeDirectory({ parentPath, name }: Dirent): boolean {
  const found = pathKind(join(parentPath, name))
  return found.kind === 'directory' || (found.kind === 'fault' && found.code !== undefined)
}

/** Lists the names of the runs in a directory by the time of the last write to their logs, the latest last. */
export function runsByLastWrite(directory: string): readonly string[] {
  const written = (name: string) => {
    const file = pathKind(join(resolve(directory), 'runs', name, 'log', 'data.mdb'))
    return file.kind === 'file' ? file.stats.mtimeMs : 0
  }
  return runsOf(directory)
    .map(name => ({ name, at: written(name) }))
    .sort((a, b) => a.at - b.at) // the sort is stable: runs of the same time stay sorted by name
    .map(({ name }) => name)
}

/**
 * Returns the directory in which an address keeps its runs' files. For a memory bus and Kafka it is `given`, else
 * `.troupe`, the directory of the default bus.
 */
export function directoryOf(address: string, given?: string): string {
  return address.startsWith('lmdb:') ? address.slice('lmdb:'.length) : (given ?? '.troupe')
}
