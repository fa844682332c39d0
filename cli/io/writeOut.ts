/**
 * Writes a file that the user named, atomically: a reader sees the whole new content or the old one. Without a name it
 * writes to stdout.
 *
 * in   pieces of text, since the lines of a large run do not fit into one string
 * out  the file, with its directories; TroupeError cli.cannot_write if it cannot be written
 * A path that is not a plain file (a pipe, a device such as /dev/stdout, a link) is written in place.
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

/** Checks, before long work, that the file can be written; makes its directories. */
export function readyOut(out: string | undefined): void {
  if (out === undefined) return
  guarded(out, () => {
    const there = madeRoom(out)
    const behind = there?.isSymbolicLink() ? statSync(out, { throwIfNoEntry: false }) : there
    if (behind?.isDirectory()) throw new Error('the path is a directory')
    accessSync(behind === undefined || there?.isFile() ? dirname(out) : out, constants.W_OK)
  })
}

/** Makes the directory that the user named. */
export const makeOut = (directory: string): void => guarded(directory, () => mkdirSync(directory, { recursive: true }))

/** Makes the parent directory of a path. Returns the path's lstat; undefined if nothing is there. */
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
      hint: 'remove the cause, or choose another path',
      cause: thrown,
    })
  }
}
