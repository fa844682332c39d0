/**
 * `troupe replay files T`: lists the files that a trajectory's tools had changed up to the end of a turn (--after;
 * default: the last turn), prints one of them, or writes all into a directory and lists them.
 *
 * in   a trajectory of a task with an environment, the store of snapshots
 * out  the files that differ from the task's image
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { snapshotsRoot } from '../../../environments'
import { bytesIn, filesIn, snapshotAfter } from '../../../replay/files/trajectoryFiles'
import { replayError } from '../../../replay/replayError'
import { factsIn, readTrajectory } from '../../../replay/trajectories/trajectory'
import { escapeForTerminal } from '../../io/terminal'
import { type ReadOptions, withLog, withRun } from '../runOptions'
import { jsonText } from '../text/jsonText'

interface FilesOptions extends ReadOptions {
  readonly after?: number
  readonly print?: string
  readonly to?: string
  readonly json?: boolean
}

export function registerFiles(replay: Command): void {
  const command = replay
    .command('files <trajectory>')
    .description("list the files that a trajectory's tools left: what differs from the task's image")
    .option('--after <turn>', 'the files after this turn (from 0); default: after the last one', turnNumber)
    .option('--print <path>', "write this file's content to standard output")
    .option('--to <dir>', 'write the files into this directory, which must not exist')
    .option('--json', 'a JSON line for each file')
  withRun(command).action(files)
}

const files = (asked: string, options: FilesOptions): Promise<void> =>
  withLog(options, async recorded => {
    const trajectory = await readTrajectory(recorded, asked)
    const snapshot = snapshotAfter(factsIn(trajectory), options.after)
    const turn = options.after === undefined ? '' : ` up to turn ${options.after}`
    if (snapshot === undefined)
      throw replayError(
        'no_files',
        `no call of ${trajectory.id}${turn} changed a file`,
        '`troupe replay show T` prints what each call changed',
      )
    const store = { root: snapshotsRoot() }
    const entries = filesIn(store, snapshot)
    if (entries === undefined)
      throw replayError(
        'no_snapshot',
        `the snapshot ${snapshot} is not in ${store.root}: it was made on another machine, or removed to free space`,
        '`troupe replay fork T --from-turn K` makes the files again by running the recorded calls',
      )
    if (options.print !== undefined) {
      const bytes = bytesIn(store, snapshot, options.print)
      if (bytes === undefined)
        throw replayError(
          'no_files',
          `the snapshot has no regular file ${options.print}`,
          '`troupe replay files T` lists the paths',
        )
      process.stdout.write(bytes)
      return
    }
    if (options.to !== undefined) {
      const target = resolve(options.to)
      mkdirSync(target)
      for (const { path, kind } of entries) {
        const bytes = kind === 'file' ? bytesIn(store, snapshot, path) : undefined
        if (bytes === undefined) continue
        mkdirSync(dirname(join(target, path)), { recursive: true })
        writeFileSync(join(target, path), bytes, { flag: 'wx' })
      }
    }
    for (const { path, kind, bytes = 0, mode = 0, to } of entries) {
      if (options.json)
        process.stdout.write(
          `${jsonText({ path, kind, bytes, mode: mode.toString(8), ...(to === undefined ? {} : { to }) })}\n`,
        )
      else if (kind !== 'directory')
        process.stdout.write(
          `${kind.padEnd(8)} ${String(bytes).padStart(9)}  ${escapeForTerminal(path)}${to === undefined ? '' : ` -> ${escapeForTerminal(to)}`}\n`,
        )
    }
  })

function turnNumber(text: string): number {
  if (!/^\d{1,6}$/.test(text)) throw new InvalidArgumentError('Write the number of a turn, such as 2.')
  return Number(text)
}
