/**
 * A file that the user named: whole, or as it was. Without a name, stdout.
 *
 * in   pieces: the lines of a large run do not fit into one text        out  @throws TroupeError cli.cannot_write
 * What is no plain file (a pipe, a device as /dev/stdout, a link) is written to where it stands.
 */
import {
  accessSync,
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { asError, TroupeError } from '../../runtime/errors'

export function writeOut(out: string | undefined, pieces: Iterable<string | Buffer>): void {
  if (out === undefined) {
    for (const piece of pieces) process.stdout.write(piece)
    return
  }
  guarded(out, () => {
    const there = madeRoom(out)
    if (there !== undefined && !there.isFile()) return write(out, pieces)
    const part = `${out}.part`
    try {
      write(part, pieces, there?.mode)
      renameSync(part, out)
    } catch (thrown) {
      rmSync(part, { force: true })
      throw thrown
    }
  })
}

/** Before what takes long: its directories are made, and whether it can be written is known. */
export function readyOut(out: string | undefined): void {
  if (out === undefined) return
  guarded(out, () => {
    const there = madeRoom(out)
    const behind = there?.isSymbolicLink() ? statSync(out, { throwIfNoEntry: false }) : there
    if (behind?.isDirectory()) throw new Error('it is a directory')
    accessSync(behind === undefined || there?.isFile() ? dirname(out) : out, constants.W_OK)
  })
}

/** The directory that the user named, made where it is not there. */
export const makeOut = (directory: string): void => guarded(directory, () => mkdirSync(directory, { recursive: true }))

/** What stands at a path, in a directory that is there from now on. */
function madeRoom(path: string) {
  mkdirSync(dirname(path), { recursive: true })
  return lstatSync(path, { throwIfNoEntry: false })
}

function write(path: string, pieces: Iterable<string | Buffer>, mode = 0o666): void {
  const file = openSync(path, 'w', mode)
  try {
    for (const piece of pieces) writeFileSync(file, piece)
  } finally {
    closeSync(file)
  }
}

function guarded(path: string, work: () => void): void {
  try {
    work()
  } catch (thrown) {
    if (thrown instanceof TroupeError) throw thrown
    throw new TroupeError('cli.cannot_write', {
      boundary: 'cli',
      retriable: false,
      message: `${path} cannot be written: ${asError(thrown).message}`,
      hint: 'name another place',
      cause: thrown,
    })
  }
}
