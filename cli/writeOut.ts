/**
 * A file that the user named, written whole; without a name, stdout.
 *
 * in   pieces: the lines of a large run do not fit into one text        out  @throws TroupeError cli.cannot_write
 */
import { closeSync, mkdirSync, openSync, writeFileSync } from 'node:fs'
import { asError, TroupeError } from '../runtime/errors'

export function writeOut(out: string | undefined, pieces: Iterable<string | Buffer>): void {
  if (out === undefined) {
    for (const piece of pieces) process.stdout.write(piece)
    return
  }
  guarded(out, () => {
    const file = openSync(out, 'w')
    try {
      for (const piece of pieces) writeFileSync(file, piece)
    } finally {
      closeSync(file)
    }
  })
}

/** The directory that the user named, made where it is not there. */
export const makeOut = (directory: string): void => guarded(directory, () => mkdirSync(directory, { recursive: true }))

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
    })
  }
}
