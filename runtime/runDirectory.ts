/** Layout of a run's files: below `<directory>/runs/<run>`, next to the embedded bus that holds its log. */
import { existsSync, readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { RunId } from '../messages/ids'

export interface RunDirectory {
  readonly root: string
  /** The embedded bus. */
  readonly log: string
  readonly blobs: string
  /** The model that the run made to begin with. */
  readonly model: string
}

export function runDirectory(directory: string, run: RunId): RunDirectory {
  const root = resolve(directory, 'runs', run)
  return { root, log: join(root, 'log'), blobs: join(root, 'blobs'), model: join(root, 'model') }
}

/** Runs of a directory, newest name last. */
export function runsOf(directory: string): readonly string[] {
  const runs = join(resolve(directory), 'runs')
  return existsSync(runs) ? readdirSync(runs).sort() : []
}
