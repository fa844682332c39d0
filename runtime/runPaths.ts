/**
 * Paths of a run's files in facts: relative to the run's directory, so that the directory can be moved or copied.
 *
 * in   a path of this host, or the text that a fact has        out  the text for a fact, or the path on this host today
 * Invariant: the run's own weights, checkpoints and model are looked up below the directory that the run has today: an
 * absolute path to them in an old log never leads to the directory in which the run was recorded, even if that still
 * exists. Files of another run are used where they were recorded, if they exist there.
 */
import { existsSync } from 'node:fs'
import { isAbsolute, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

/**
 * Returns the text that names `path` in a fact of the run in `root` (`DIR/runs/RUN`): a relative path if it lies in
 * `DIR/runs`, with `/` between its parts, else a `file:` URL.
 */
export function recordedPath(root: string, path: string): string {
  const fromRuns = relative(resolve(root, '..'), resolve(path))
  if (fromRuns === '..' || fromRuns.startsWith(`..${sep}`) || isAbsolute(fromRuns)) return pathToFileURL(path).href
  return relative(resolve(root), resolve(path)).split(sep).join('/')
}

/** Matches a path below a run's directory in an old log: the run's name, and the path below its directory. */
const ofRun = /^.*[/\\]runs[/\\]([^/\\]+)[/\\]((?:weights|checkpoints|model)(?:[/\\].*)?)$/

/** Returns the path on this host that `recorded` names for the run in `root`. */
export function pathToday(root: string, recorded: string): string {
  if (!recorded.startsWith('file:')) return isAbsolute(recorded) ? movedPath(root, recorded) : resolve(root, recorded)
  return movedPath(root, fileURLToPath(recorded))
}

/** Returns today's path of a file that a fact names by an absolute path. */
function movedPath(root: string, path: string): string {
  const [, run, rest] = ofRun.exec(path) ?? []
  if (run === undefined || rest === undefined) return path
  const runs = resolve(root, '..')
  if (join(runs, run) === resolve(root)) return join(root, rest)
  // The path leads into another run, for instance to its model. A run of the same name beside this one may be a
  // different run, so the recorded path comes first.
  if (existsSync(path)) return path
  // A fork uses weights of its parent, whose directory is moved together with the fork's.
  const beside = join(runs, run, rest)
  return existsSync(beside) ? beside : path
}
